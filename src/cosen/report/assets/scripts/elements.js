// Elements made of text and other elements, never of markup: nothing in the data can become a tag.

function byId(id) {
  return document.getElementById(id);
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A name from the data, whose direction does not spill over.
function named(text) {
  return element("bdi", null, text);
}

// A table in a region that scrolls by itself. Headings and cells are texts or
// elements; the first of a row heads it.
function tableOf(caption, headings, rows) {
  const head = element(
    "tr",
    null,
    ...headings.map((one) => (one.tagName === "TH" ? one : element("th", { scope: "col" }, one))),
  );
  const body = rows.map(([first, ...cells]) =>
    element(
      "tr",
      null,
      element("th", { scope: "row" }, first),
      ...cells.map((cell) => (cell.tagName === "TD" ? cell : element("td", null, cell))),
    ),
  );
  const table = element(
    "table",
    null,
    element("caption", { class: "visually-hidden" }, caption),
    element("thead", null, head),
    element("tbody", null, ...body),
  );
  const region = element("div", { class: "scroll tall", "data-name": caption }, table);
  watchScrolling(region);
  return region;
}

// A change, shaded like those in the table of classes. `better` is the sign that is for the better.
function changeCell(change, { better = 1, full = 0.1 } = {}) {
  const cell = element("td", { class: "change" }, points(change));
  shadeChange(cell, change, { better, full });
  return cell;
}

function shadeChange(cell, change, { better = 1, full = 0.1 } = {}) {
  const sign = Math.sign(Number(((change ?? 0) * better).toFixed(4)));
  cell.classList.toggle("better", sign > 0);
  cell.classList.toggle("worse", sign < 0);
  cell.style.setProperty("--shade", Math.min(1, Math.abs(change ?? 0) / full).toFixed(3));
}

// Fills a closed <details> when it is opened first: tables of 102 × 102 are not made for nobody.
function fillWhenOpened(id, make) {
  const details = byId(id);
  const place = details?.querySelector("div");
  const fill = () => {
    if (details.open) place.replaceChildren(...[make()].flat());
  };
  details?.addEventListener("toggle", fill);
  return () => details && fill();
}

// A region that scrolls must be reachable by keyboard; one that does not must not stop the tab key.
function watchScrolling(region) {
  const update = () => {
    const overflows =
      region.scrollWidth > region.clientWidth + 1 || region.scrollHeight > region.clientHeight + 1;
    for (const [name, value] of [
      ["tabindex", "0"],
      ["role", "region"],
      ["aria-label", region.dataset.name],
    ]) {
      if (overflows) region.setAttribute(name, value);
      else region.removeAttribute(name);
    }
  };
  const observer = new ResizeObserver(update);
  observer.observe(region);
  for (const child of region.children) observer.observe(child);
}

// Calls `draw` once in the next frame, however often it is asked for before.
function oncePerFrame(draw) {
  let waiting = 0;
  return () => {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      draw();
    });
  };
}

// Tells a screen reader where a slider has come to, once it rests.
function announcer(output) {
  let waiting = 0;
  return (text) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => (output.textContent = text()), 400);
  };
}
