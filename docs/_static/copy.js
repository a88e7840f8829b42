// A button beside each block of code, which copies it; of a console's block only the commands.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // no secure context
  for (const block of document.querySelectorAll("div.highlight")) {
    if (block.closest(".highlight-text")) continue; // output
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const text = block.querySelector("pre").textContent;
      const commands = block.closest(".highlight-console")
        ? text.match(/^\$ (?:.*\\\n)*.*/gm).map((line) => line.slice(2)).join("\n")
        : text;
      await navigator.clipboard.writeText(commands);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});
