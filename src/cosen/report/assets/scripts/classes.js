// The table of classes, which the template has written: made sortable, filterable and clickable.

function startClasses() {
  const table = byId("class-table");
  if (!table) return;
  const body = table.tBodies[0];
  for (const row of body.rows) {
    const label = Number(row.dataset.label);
    const button = element("button", { type: "button", class: "link" }, named(className(label)));
    button.setAttribute("aria-haspopup", "dialog");
    button.addEventListener("click", () => openDetail(label));
    row.cells[0].replaceChildren(button);
  }
  startSorting(table, body);
  startFilter(body);
  addChart(
    "recalls-chart",
    (width, colours) =>
      recallChart(width, colours, {
        before: isCompared ? contents.classes.map((one) => one.recall.baseline) : null,
        after: contents.classes.map((one) => one.recall.chosen),
        names: { before: methods.baseline, after: methods.chosen },
        counts: contents.classes.map((one) => one.train),
        height: 340,
      }),
    { onClick: ({ points: [point] }) => openDetail(contents.by_rarity[point.x]) },
  );
}

const SORT_KEYS = {
  train: (label) => contents.by_rarity.indexOf(label), // ties stay as the verdict counts them
  baseline: (label) => contents.classes[label].recall.baseline,
  chosen: (label) => contents.classes[label].recall.chosen,
  change: (label) =>
    difference(contents.classes[label].recall.chosen, contents.classes[label].recall.baseline),
};
const byName = new Intl.Collator(undefined, { numeric: true });

function startSorting(table, body) {
  const headings = [...table.tHead.rows[0].cells];
  for (const heading of headings) {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = [...body.rows].sort(comparison(heading.dataset.sort));
      body.append(...(falling ? rows.reverse() : rows));
    });
  }
}

function comparison(key) {
  if (key === "name") {
    return (a, b) => byName.compare(className(a.dataset.label), className(b.dataset.label));
  }
  const value = (row) => SORT_KEYS[key](Number(row.dataset.label)) ?? Infinity;
  return (a, b) => (value(a) === value(b) ? 0 : value(a) - value(b));
}

function startFilter(body) {
  const box = byId("class-filter");
  const say = box && announcer(byId("class-count"));
  box?.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !className(Number(row.dataset.label)).toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    say(() => (wanted ? `${shown} of ${classCount} classes` : ""));
  });
}
