// Marks the current section in the navigation bar, copies the command, and starts all sections.

function startSections() {
  const links = new Map(
    [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
  );
  const visible = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) visible.add(target.id);
        else visible.delete(target.id);
      }
      const current = [...links.keys()].find((id) => visible.has(id));
      for (const [id, link] of links) {
        if (id === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      // Scrolls the bar only; scrollIntoView would scroll the page too.
      const bar = document.querySelector(".contents ul");
      if (current) bar.scrollLeft = links.get(current).offsetLeft - bar.clientWidth / 2;
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  for (const id of links.keys()) observer.observe(byId(id));
}

// Browsers may block the clipboard for local files. The text is then selected.

function startCommand() {
  const button = byId("copy");
  button?.addEventListener("click", async () => {
    const command = byId("command");
    try {
      await navigator.clipboard.writeText(command.textContent);
      byId("copied").textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      byId("copied").textContent = "Selected: copy it with Ctrl+C";
    }
  });
}

// A section that fails does not stop the others.

for (const start of [
  startTheme,
  startCharts,
  startSections,
  startDetail,
  startClasses,
  startMatrices,
  startCosts,
  startCurves,
  startTradeoff,
  startReliability,
  startCommand,
]) {
  try {
    start();
  } catch (error) {
    reportError(error);
  }
}
for (const region of document.querySelectorAll(".scroll[data-name]")) watchScrolling(region);
