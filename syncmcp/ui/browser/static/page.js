// Keeps a page up to date: what waits, the time left, what the model has written so far.
"use strict";

const INTERVAL_MS = 500;
// A click or a key that was meant for something else must not answer a question that just appeared.
const PAUSE_MS = 800;
const page = document.body.dataset;
const element = (id) => document.getElementById(id);

function show(news) {
  if (news.next) {
    location.replace(news.next);
    return;
  }
  if (news.state !== page.state) {
    location.reload();
    return;
  }
  if (element("left")) element("left").textContent = news.left;
  // Written anew only when it changed: a person may be selecting it.
  if (element("live") && element("live").textContent !== news.text) element("live").textContent = news.text;
  list(news.waiting);
}

// What stays in the list is not drawn anew: a person may be clicking it.
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
  try {
    const response = await fetch(page.poll, { headers: { Accept: "application/json" } });
    element("gone").hidden = response.ok;
    if (response.ok) show(await response.json());
  } catch {
    element("gone").hidden = false;
  }
  setTimeout(look, INTERVAL_MS);
}

function pause() {
  const buttons = [...document.querySelectorAll("main button")];
  for (const button of buttons) button.disabled = true;
  setTimeout(() => {
    for (const button of buttons) button.disabled = false;
    // Enter says no. Where the person has begun to fill something in, they stay there.
    const safe = document.querySelector("main button.safe");
    if (safe && document.activeElement === document.body) safe.focus({ preventScroll: true });
  }, PAUSE_MS);
}

pause();
look();
