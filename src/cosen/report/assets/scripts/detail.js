// One class in a dialog: what it is taken for, what its mistakes cost, its pictures. A modal
// <dialog> keeps the focus inside, closes on Escape and gives the focus back by itself.

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
    openDetail(order[(order.indexOf(shownClass) + by + order.length) % order.length]);
  };
  byId("detail-rarer").addEventListener("click", step(-1));
  byId("detail-commoner").addEventListener("click", step(1));
  byId("detail-close").addEventListener("click", () => dialog.close());
  // A click beside the dialog lands on the dialog itself, one inside on something in it.
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
      ...takenFor(label),
      ...takenForIt(label),
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
  const rank = contents.by_rarity.indexOf(label) + 1;
  const percentOrNone = (rate) => (rate === null ? NO_VALUE : `${percent(rate)} %`);
  const tiles = [
    tile("training images", amount(one.train), `place ${rank} of ${classCount}, from the rarest`),
    tile("test images", amount(one.test)),
    tile(
      "recall",
      percentOrNone(one.recall.chosen),
      isCompared
        ? `${percentOrNone(one.recall.baseline)} with ${methods.baseline}`
        : methods.chosen,
    ),
  ];
  if (isCompared) tiles.push(tile("change", points(change), "in points of per cent"));
  return [element("dl", { class: "tiles" }, ...tiles)];
}

const otherClasses = (label) => contents.by_rarity.filter((other) => other !== label);

function takenFor(label) {
  if (!contents.confusion) return [];
  const cells = mostFrequent(otherClasses(label).map((other) => [label, other])).slice(
    0,
    SHOWN_CONFUSIONS,
  );
  const row = ([truth, said], name) => [name, ...confusionCells(truth, said)];
  return [
    element("h3", null, "What its test images are taken for"),
    tableOf(
      `What test images of ${className(label)} are taken for`,
      ["said to be", ...confusionHeadings()],
      [
        row([label, label], element("span", null, named(className(label)), " (right)")),
        ...cells.map((cell) => row(cell, named(className(cell[1])))),
      ],
    ),
  ];
}

function takenForIt(label) {
  if (!contents.confusion) return [];
  const cells = mostFrequent(otherClasses(label).map((other) => [other, label])).slice(
    0,
    SHOWN_CONFUSIONS,
  );
  if (!cells.length) return [];
  return [
    element("h3", null, "What else is taken for it"),
    tableOf(
      `Test images of other classes that are taken for ${className(label)}`,
      ["true class", ...confusionHeadings()],
      cells.map((cell) => [named(className(cell[0])), ...confusionCells(...cell)]),
    ),
  ];
}

function costRow(label) {
  if (!contents.costs) return [];
  const dearest = otherClasses(label)
    .map((other) => [other, lastCost(label, other)])
    .sort((a, b) => b[1] - a[1])
    .slice(0, SHOWN_CONFUSIONS);
  const own = lastCost(label, label);
  const summary = "What each mistake costs beside the right answer, logarithmically";
  return [
    element("h3", null, "What its mistakes cost"),
    element(
      "p",
      null,
      "Its row of ξ at the end, divided by its diagonal. Above 1, the class had to win by a " +
        "wider margin against that output.",
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
      `The dearest outputs for ${className(label)}`,
      ["the dearest outputs", "ξ", "beside the diagonal"],
      dearest.map(([other, cost]) => [
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
      : element("p", { class: "quiet" }, "The report holds no picture of this class."),
  ];
}
