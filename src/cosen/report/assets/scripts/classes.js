// Makes the table of classes sortable, filterable and clickable, and draws the recalls.

function startClasses() {
  const table = byId("class-table");
  if (!table) return;
  const body = table.tBodies[0];
  const isListed = body.rows.length === classCount;
  for (const row of body.rows) linkClass(row);
  const list = isListed ? wholeList(body) : partialList(body);
  startSorting(table, list);
  startFilter(list);
  addChart(
    "recalls-chart",
    (width, colours) =>
      (isListed ? recallChart : meanRecallChart)(width, colours, {
        before: isCompared ? contents.classes.map((one) => one.recall.baseline) : null,
        after: contents.classes.map((one) => one.recall.chosen),
        names: { before: methods.baseline, after: methods.chosen },
        counts: contents.classes.map((one) => one.train),
        height: 340,
      }),
    { onClick: ({ points: [point] }) => isListed && openDetail(contents.by_rarity[point.x]) },
  );
}

function linkClass(row) {
  const label = Number(row.dataset.label);
  const button = element("button", { type: "button", class: "link" }, named(className(label)));
  button.setAttribute("aria-haspopup", "dialog");
  button.addEventListener("click", () => openDetail(label));
  row.cells[0].replaceChildren(button);
}

// All rows are in the page: `show` sorts them and hides some.
function wholeList(body) {
  const rows = new Map([...body.rows].map((row) => [Number(row.dataset.label), row]));
  return {
    show(order, isWanted) {
      for (const [label, row] of rows) row.hidden = !isWanted(label);
      body.append(...order.map((label) => rows.get(label)));
    },
  };
}

const SHOWN_CLASSES = 200;

// With many classes, `show` makes the first rows only.
function partialList(body) {
  const show = (order, isWanted) => {
    const labels = order.filter(isWanted).slice(0, SHOWN_CLASSES);
    body.replaceChildren(...labels.map(classRow));
    byId("class-shown").textContent = String(labels.length);
  };
  show(contents.by_rarity, () => true);
  return { show };
}

// A row as in classes.html.j2.
function classRow(label) {
  const one = contents.classes[label];
  const recall = (role) => {
    const cell = element("td", null, percent(one.recall[role]));
    if (one.spread[role] !== null) {
      cell.append(" ", element("span", { class: "spread" }, `± ${percent(one.spread[role])}`));
    }
    return cell;
  };
  const row = element("tr", { "data-label": label }, element("th", { scope: "row" }));
  row.append(element("td", { class: "train" }, amount(one.train)));
  if (isCompared) row.append(recall("baseline"));
  row.append(recall("chosen"));
  if (isCompared) row.append(changeCell(difference(one.recall.chosen, one.recall.baseline)));
  linkClass(row);
  return row;
}

const SORT_KEYS = {
  train: (label) => rarityRank[label], // keeps the order of ties
  baseline: (label) => contents.classes[label].recall.baseline,
  chosen: (label) => contents.classes[label].recall.chosen,
  change: (label) =>
    difference(contents.classes[label].recall.chosen, contents.classes[label].recall.baseline),
};
const byName = new Intl.Collator(undefined, { numeric: true });

let classList = contents.by_rarity; // the labels in the order of the table
let isWantedClass = () => true;

function startSorting(table, list) {
  const headings = [...table.tHead.rows[0].cells];
  for (const heading of headings) {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      classList = [...classList].sort(comparison(heading.dataset.sort));
      if (falling) classList.reverse();
      list.show(classList, isWantedClass);
    });
  }
}

function comparison(key) {
  if (key === "name") return (a, b) => byName.compare(className(a), className(b));
  const value = (label) => SORT_KEYS[key](label) ?? Infinity;
  return (a, b) => (value(a) === value(b) ? 0 : value(a) - value(b));
}

function startFilter(list) {
  const box = byId("class-filter");
  const announce = box && announcer(byId("class-count"));
  box?.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    isWantedClass = (label) => className(label).toLowerCase().includes(wanted);
    list.show(classList, isWantedClass);
    const found = classList.filter(isWantedClass).length;
    announce(() => (wanted ? `${found} of ${classCount} classes` : ""));
  });
}

function countsAxis(colours) {
  return axis(colours, {
    title: "training<br>images",
    domain: [0, 0.24],
    nticks: 3,
    rangemode: "tozero",
  });
}

const BANDS = 100;

// As recallChart for many classes: means over bands of as many classes each.
function meanRecallChart(width, colours, { before, after, names, counts, height }) {
  const size = Math.ceil(classCount / BANDS);
  const bands = [];
  for (let start = 0; start < classCount; start += size) {
    bands.push(contents.by_rarity.slice(start, start + size));
  }
  const mean = (labels, values) => {
    const known = labels.map((label) => values[label]).filter((value) => value !== null);
    return known.length ? known.reduce((total, value) => total + value, 0) / known.length : null;
  };
  const positions = bands.map((_, i) => i * size + (bands[i].length - 1) / 2 + 1);
  const hover = bands.map((labels, i) => {
    const lines = [`classes ${i * size + 1} to ${i * size + labels.length} from the rarest`];
    if (before) lines.push(`${labelText(names.before)} ${percent(mean(labels, before))} %`);
    lines.push(`${labelText(names.after)} ${percent(mean(labels, after))} %`);
    lines.push(`${amount(mean(labels, counts))} training images on average`);
    return lines.join("<br>");
  });
  const line = (name, rates, colour) => ({
    x: positions,
    y: bands.map((labels) => mean(labels, rates)).map((rate) => (rate === null ? null : 100 * rate)),
    name: labelText(name, 24),
    mode: "lines",
    line: { color: colour, width: 2 },
    hovertext: hover,
    hoverinfo: "text",
  });
  return {
    data: [
      ...(before ? [line(names.before, before, colours.plain)] : []),
      line(names.after, after, colours.accent),
      {
        type: "bar",
        x: positions,
        y: bands.map((labels) => mean(labels, counts)),
        yaxis: "y2",
        hovertext: hover,
        hoverinfo: "text",
        marker: { color: colours.bar },
        showlegend: false,
      },
    ],
    layout: {
      width,
      height,
      margin: { l: 58, r: 12, t: 34, b: 44 },
      xaxis: axis(colours, { title: "classes, from rare to common", anchor: "y2" }),
      yaxis: axis(colours, {
        title: "mean recall, %",
        domain: [0.34, 1],
        range: [-2, 103],
        zeroline: false,
        nticks: 6,
      }),
      yaxis2: countsAxis(colours),
    },
  };
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
      yaxis2: countsAxis(colours),
    },
  };
}
