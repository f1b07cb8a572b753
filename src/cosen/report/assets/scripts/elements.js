// Elements from text and other elements, never from markup: data cannot become a tag.

function byId(id) {
  return document.getElementById(id);
}

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A name from the data. Its text direction does not affect the text around it.
function named(text) {
  return element("bdi", null, text);
}

// A table in a scrolling region. Headings and cells are texts or elements; the first cell of a row
// is its heading.
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

// A shaded change. `better` is the sign of an improvement.
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

// Fills a <details> when it is opened: tables of 102 × 102 take time.
function fillWhenOpened(id, make) {
  const details = byId(id);
  const place = details?.querySelector("div");
  const fill = () => {
    if (details.open) place.replaceChildren(...[make()].flat());
  };
  details?.addEventListener("toggle", fill);
  return () => details && fill();
}

// A region can be focused only if it scrolls.
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

// Calls `draw` at most once per frame.
function oncePerFrame(draw) {
  let waiting = 0;
  return () => {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      draw();
    });
  };
}

// Announces a text to screen readers when a slider or a filter stops changing.
function announcer(output) {
  let waiting = 0;
  return (text) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => (output.textContent = text()), 400);
  };
}
