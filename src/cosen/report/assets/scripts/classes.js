// Makes the table of classes sortable, filterable and clickable, and draws the recalls.

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
  train: (label) => contents.by_rarity.indexOf(label), // keeps the order of ties
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
  const announce = box && announcer(byId("class-count"));
  box?.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let visible = 0;
    for (const row of body.rows) {
      row.hidden = !className(Number(row.dataset.label)).toLowerCase().includes(wanted);
      visible += row.hidden ? 0 : 1;
    }
    announce(() => (wanted ? `${visible} of ${classCount} classes` : ""));
  });
}

// Recall of each class before and after, the rarest first, above the number of training images. A
// line joins the two points of a class. `unnamed` shows names on hover only: Plotly needs most of
// its time to draw a hundred of them.

function recallChart(width, colours, { before, after, names, counts, height, lowest, unnamed }) {
  const order = contents.by_rarity;
  const leastSpacing = isPrinting() ? 0 : order.length > MANY ? 9 : 24;
  const margin = { l: 58, r: 12, t: 34 };
  const whole = Math.max(width, order.length * leastSpacing + margin.l + margin.r);
  const spacing = (whole - margin.l - margin.r) / order.length;
  const dense = order.length > MANY;
  const below = classTicks(order, spacing, colours, { size: dense ? 9 : 11 });
  if (unnamed) below.room = 24;
  const inPercent = (rates) =>
    order.map((label) => (rates[label] === null ? null : 100 * rates[label]));
  const hover = order.map((label) => {
    const lines = [`<b>${classLabels[label]}</b>`];
    if (before) lines.push(`${labelText(names.before)} ${percent(before[label])} %`);
    lines.push(`${labelText(names.after)} ${percent(after[label])} %`);
    if (before) lines.push(`change ${points(difference(after[label], before[label]))}`);
    if (counts) lines.push(`${amount(counts[label])} training images`);
    return lines.join("<br>");
  });
  const positions = order.map((_, i) => i);
  const markers = { hovertext: hover, hoverinfo: "text", mode: "markers", x: positions };
  const markerSize = Math.max(5, Math.min(11, spacing * 0.7));
  const data = [];
  if (before) {
    for (const [sign, name, colour] of [
      [1, "better", colours.better],
      [-1, "worse", colours.worse],
    ]) {
      const joined = { x: [], y: [] };
      order.forEach((label, i) => {
        const change = difference(after[label], before[label]);
        if (change === null || Math.sign(change) !== sign) return;
        joined.x.push(i, i, null);
        joined.y.push(100 * before[label], 100 * after[label], null);
      });
      data.push({
        ...joined,
        mode: "lines",
        name,
        legendrank: 1001, // after the methods
        hoverinfo: "skip",
        line: { color: colour, width: Math.max(2, Math.min(5, spacing * 0.35)) },
      });
    }
    data.push({
      ...markers,
      name: labelText(names.before, 24),
      y: inPercent(before),
      marker: {
        size: markerSize,
        color: colours.surface,
        line: { color: colours.plain, width: 2 },
      },
    });
  }
  data.push({
    ...markers,
    name: labelText(names.after, 24),
    y: inPercent(after),
    marker: { size: markerSize, color: colours.accent },
  });
  if (counts) {
    data.push({
      type: "bar",
      x: positions,
      y: order.map((label) => counts[label]),
      yaxis: "y2",
      hovertext: hover,
      hoverinfo: "text",
      marker: { color: colours.bar },
      showlegend: false,
    });
  }
  const rates = [...(before ?? []), ...after].filter((rate) => rate !== null);
  const bottom = lowest ?? Math.max(0, Math.floor(10 * Math.min(1, ...rates) - 0.5) * 10);
  return {
    data,
    layout: {
      width: whole,
      height: height + below.room,
      margin: { ...margin, b: below.room + 10 },
      xaxis: axis(colours, {
        ...below.ticks,
        ...(unnamed && { showticklabels: false, title: "classes, from rare to common" }),
        anchor: counts ? "y2" : "y",
      }),
      yaxis: axis(colours, {
        title: "recall, %",
        domain: counts ? [0.34, 1] : [0, 1],
        range: [bottom - 2, 103],
        zeroline: false,
        nticks: 6,
      }),
      yaxis2: axis(colours, {
        title: "training<br>images",
        domain: [0, 0.24],
        nticks: 3,
        rangemode: "tozero",
      }),
    },
  };
}
