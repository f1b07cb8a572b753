// The dialog of one class: its confusions, costs and pictures. A modal <dialog> keeps the focus
// inside, closes on Escape and restores the focus.

const SHOWN_CONFUSIONS = 8;
let shownClass = null;

function openDetail(label) {
  shownClass = label;
  fillDetail();
  const dialog = byId("detail");
  if (!dialog.open) dialog.showModal();
  drawMargins();
  dialog.scrollTop = 0;
}

function startDetail() {
  const dialog = byId("detail");
  const step = (by) => () => {
    const order = contents.by_rarity;
    openDetail(order[(rarityRank[shownClass] + by + order.length) % order.length]);
  };
  byId("detail-rarer").addEventListener("click", step(-1));
  byId("detail-more-common").addEventListener("click", step(1));
  byId("detail-close").addEventListener("click", () => dialog.close());
  // The target of a click outside is the dialog itself.
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
  themeListeners.push(() => dialog.open && drawMargins());
}

function fillDetail() {
  const label = shownClass;
  byId("detail-name").replaceChildren(named(className(label)));
  byId("detail")
    .querySelector(".body")
    .replaceChildren(
      ...detailFigures(label),
      ...predictionsOf(label),
      ...confusedWith(label),
      ...costRow(label),
      ...ownPictures(label),
    );
}

function detailFigures(label) {
  const one = contents.classes[label];
  const tile = (name, value, more) =>
    element(
      "div",
      { class: "tile" },
      element("dt", null, name),
      element("dd", { class: "value" }, value),
      ...(more ? [element("dd", { class: "before" }, more)] : []),
    );
  const change = difference(one.recall.chosen, one.recall.baseline);
  const rank = rarityRank[label] + 1;
  const percentOrNone = (rate) => (rate === null ? NO_VALUE : `${percent(rate)} %`);
  const tiles = [
    tile("training images", amount(one.train), `${rank} of ${classCount}, from the rarest`),
    tile("test images", amount(one.test)),
    tile(
      "recall",
      percentOrNone(one.recall.chosen),
      isCompared
        ? `${percentOrNone(one.recall.baseline)} with ${methods.baseline}`
        : methods.chosen,
    ),
  ];
  if (isCompared) tiles.push(tile("change", points(change), "percentage points"));
  return [element("dl", { class: "tiles" }, ...tiles)];
}

const otherClasses = (label) => contents.by_rarity.filter((other) => other !== label);

function predictionsOf(label) {
  if (!contents.confusion) return [];
  const cells = mostFrequent(otherClasses(label).map((other) => [label, other])).slice(
    0,
    SHOWN_CONFUSIONS,
  );
  const row = ([truth, predicted], name) => [name, ...confusionCells(truth, predicted)];
  return [
    element("h3", null, "Predictions for its test images"),
    tableOf(
      `Predictions for test images of ${className(label)}`,
      ["predicted class", ...confusionHeadings()],
      [
        row([label, label], element("span", null, named(className(label)), " (correct)")),
        ...cells.map((cell) => row(cell, named(className(cell[1])))),
      ],
    ),
  ];
}

function confusedWith(label) {
  if (!contents.confusion) return [];
  const cells = mostFrequent(otherClasses(label).map((other) => [other, label])).slice(
    0,
    SHOWN_CONFUSIONS,
  );
  if (!cells.length) return [];
  return [
    element("h3", null, "Other classes that are predicted as this one"),
    tableOf(
      `Test images of other classes that are predicted as ${className(label)}`,
      ["true class", ...confusionHeadings()],
      cells.map((cell) => [named(className(cell[0])), ...confusionCells(...cell)]),
    ),
  ];
}

function costRow(label) {
  if (!learned) return [];
  const costliest = otherClasses(label)
    .map((other) => [other, lastCost(label, other)])
    .sort((a, b) => b[1] - a[1])
    .slice(0, SHOWN_CONFUSIONS);
  const own = lastCost(label, label);
  const summary = "Cost of each mistake relative to a correct prediction, on a logarithmic scale";
  return [
    element("h3", null, "Costs of its mistakes"),
    element(
      "p",
      null,
      "Its row of ξ after the last epoch, divided by the diagonal. Above 1, training required a " +
        "wider margin over that class.",
    ),
    element(
      "div",
      { class: "scroll", "data-name": summary },
      element("div", {
        class: "chart drawn",
        id: "margins-chart",
        role: "img",
        "aria-label": summary,
      }),
    ),
    tableOf(
      `The most expensive mistakes for ${className(label)}`,
      ["predicted class", "ξ", "relative to the diagonal"],
      costliest.map(([other, cost]) => [
        named(className(other)),
        significant(cost),
        `× ${significant(cost / own)}`,
      ]),
    ),
  ];
}

function drawMargins() {
  const place = byId("margins-chart");
  if (!place) return;
  const colours = palette();
  const order = contents.by_rarity;
  const width = place.parentElement.clientWidth;
  const margin = { l: 50, r: 8, t: 8 };
  const ticks = classTicks(order, (width - margin.l - margin.r) / order.length, colours, {
    size: classCount > MANY ? 9 : 11,
  });
  const ratio = order.map(
    (other) => lastCost(shownClass, other) / lastCost(shownClass, shownClass),
  );
  const factors = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1000];
  const data = {
    type: "bar",
    x: order.map((_, i) => i),
    y: ratio.map(Math.log10),
    hovertext: order.map((other, i) => `${classLabels[other]}<br>× ${significant(ratio[i])}`),
    hoverinfo: "text",
    marker: { color: ratio.map((one) => (one > 1 ? colours.accent : colours.bar)) },
  };
  Plotly.react(
    place,
    [data],
    {
      ...commonLayout(colours),
      width,
      height: 190 + ticks.room,
      margin: { ...margin, b: ticks.room + 8 },
      xaxis: axis(colours, ticks.ticks),
      yaxis: axis(colours, {
        tickvals: factors.map(Math.log10),
        ticktext: factors.map((factor) => `× ${factor}`),
        zerolinecolor: colours.quiet,
      }),
      showlegend: false,
    },
    PLOTLY_OPTIONS,
  );
}

function ownPictures(label) {
  if (!byId("pictures")) return [];
  const own = [byId("pictures"), byId("examples").content].flatMap((place) => [
    ...place.querySelectorAll(`.picture[data-label="${label}"]`),
  ]);
  return [
    element("h3", null, "Its pictures"),
    own.length
      ? element("div", { class: "gallery" }, ...own.map((picture) => picture.cloneNode(true)))
      : element("p", { class: "quiet" }, "The report has no picture of this class."),
  ];
}
