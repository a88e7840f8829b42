// Updates a page: the open questions, the time left, and the text of the model so far.
"use strict";

const INTERVAL_MS = 500;
// A click or a key that was meant for something else must not answer a question that just appeared.
const PAUSE_MS = 800;
const page = document.body.dataset;
const buttons = [...document.querySelectorAll("main button")];
const element = (id) => document.getElementById(id);
let paused = true;
let gone = false;
let leaving = false;

function show(news) {
  if (news.next) {
    location.replace(news.next);
    return;
  }
  if (news.state !== page.state) {
    location.reload();
    return;
  }
  if (element("left")) {
    element("left").textContent = news.left;
    element("clock").classList.toggle("soon", news.soon);
    element("soon").hidden = !news.soon;
  }
  // Replaced only if it has changed: a person may be selecting the text.
  if (element("live") && element("live").textContent !== news.text) element("live").textContent = news.text;
  if (element("progress")) element("progress").textContent = news.progress;
  list(news.waiting);
}

// Items that stay in the list are not replaced: a person may be clicking one.
function list(waiting) {
  const drawn = element("waiting");
  const urls = new Set(waiting.map((one) => one.url));
  for (const item of [...drawn.children]) if (!urls.has(url(item))) item.remove();
  waiting.forEach((one, place) => {
    if (!drawn.children[place] || url(drawn.children[place]) !== one.url) {
      drawn.insertBefore(row(one), drawn.children[place] || null);
    }
  });
  element("queue").hidden = waiting.length === 0;
  if (element("none")) element("none").hidden = waiting.length > 0;
  document.title = document.title.replace(/^\(\d+\) /, "");
  if (waiting.length) document.title = `(${waiting.length}) ${document.title}`;
}

function url(item) {
  return item.firstElementChild.getAttribute("href");
}

function row(one) {
  const link = document.createElement("a");
  link.href = one.url;
  link.textContent = one.title;
  const server = document.createElement("span");
  server.className = "server";
  server.textContent = one.server;
  const item = document.createElement("li");
  item.append(link, " ", server);
  return item;
}

async function look() {
  if (leaving) return;
  let response = null;
  try {
    const visible = document.hidden ? "no" : "yes";
    response = await fetch(`${page.poll}&visible=${visible}`, { headers: { Accept: "application/json" } });
    const news = response.ok && (await response.json());
    if (news && !leaving) show(news);
  } catch {
    response = null;
  }
  gone = !(response && response.ok);
  element("gone").hidden = !gone;
  switchButtons();
  setTimeout(look, INTERVAL_MS);
}

function switchButtons() {
  for (const button of buttons) button.disabled = paused || gone;
}

function pause() {
  switchButtons();
  setTimeout(() => {
    paused = false;
    switchButtons();
    // Enter presses the safe button, unless the person has focused something already.
    const first = document.querySelector("main button.safe") || element("problems");
    if (first && document.activeElement === document.body) first.focus({ preventScroll: true });
  }, PAUSE_MS);
}

// The program checks the answers, and shows an error at each field. But the browser submits an
// unreadable value, such as half a date, as an empty one: this function reports it.
function check(form) {
  form.noValidate = true;
  form.addEventListener("submit", (event) => {
    const all = event.submitter.formNoValidate ? [] : [...form.elements];
    const unread = all.filter((one) => one.validity && one.validity.badInput);
    for (const old of form.querySelectorAll(".unread")) {
      old.previousElementSibling.removeAttribute("aria-invalid");
      old.remove();
    }
    for (const input of unread) {
      const words = document.createElement("p");
      words.className = "wrong unread";
      words.id = `${input.id}-unread`;
      words.textContent = input.type === "number" ? "This is not a number." : "This date or time is not complete.";
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", `${input.getAttribute("aria-describedby") || ""} ${words.id}`.trim());
      input.after(words);
    }
    leaving = unread.length === 0; // an update must not interrupt the submission
    if (leaving) return;
    event.preventDefault();
    unread[0].focus();
  });
}

for (const form of document.querySelectorAll("main form")) check(form);
pause();
look();
