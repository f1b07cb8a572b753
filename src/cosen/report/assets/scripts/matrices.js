// Confusion matrices side by side, and what changed between them.

const LISTED_CONFUSIONS = 12;
const classOrder = { rarity: contents.by_rarity, label: contents.classes.map((_, label) => label) };
let shownOrder = "rarity";

function startMatrices() {
  if (!contents.confusion) return;
  for (const role of roles) addChart(`confusion-${role}`, confusionChart(role), openRow);
  if (roles.length === 2) addChart("confusion-difference", differenceChart, openRow);
  const fillTables = fillWhenOpened("confusion-details", confusionTables);
  for (const choice of document.querySelectorAll('input[name="order"]')) {
    choice.addEventListener("change", () => {
      shownOrder = choice.value;
      redraw(
        "confusion-baseline",
        "confusion-chosen",
        "confusion-difference",
        "costs-chart",
        "statistic-chart",
      );
      fillTables();
    });
  }
  listConfusions();
}

const openRow = {
  onClick: ({ points: [point] }) => openDetail(classOrder[shownOrder][point.y]),
};

function hoverCounts(row, column) {
  const lines = roles.map((role) => {
    const { count, rate } = countAndRate(role, row, column);
    return `${labelText(methods[role], 24)}: ${amount(count)} images, ${percent(rate)} %`;
  });
  return [cellName(row, column), ...lines].join("<br>");
}

// Whole per cent, and nothing where there is nothing: the eye then finds the confusions.
function wholePercent(rate) {
  return rate ? (rate < 0.005 ? "<1" : (100 * rate).toFixed(0)) : "";
}

function confusionChart(role) {
  return (width, colours) =>
    heatMap(width, colours, {
      order: classOrder[shownOrder],
      value: (row, column) => countAndRate(role, row, column).rate,
      number: (row, column) => labelText(wholePercent(countAndRate(role, row, column).rate)),
      hover: hoverCounts,
      scale: shareColours(colours),
      smallest: classCount > MANY ? 4 : 21,
      withBar: classCount > NUMBERED_UP_TO,
    });
}

function changeOf(row, column) {
  return difference(
    countAndRate("chosen", row, column).rate,
    countAndRate("baseline", row, column).rate,
  );
}

// The change for the better: more on the diagonal, less beside it.
function improvement(row, column) {
  const change = changeOf(row, column);
  return change === null || row === column ? change : -change;
}

// A change in whole points, and nothing where there is none.
function wholePoints(change) {
  const text = (100 * (change ?? 0)).toFixed(0);
  if (Number(text) === 0) return "";
  return change > 0 ? `+${text}` : text.replace("-", "−");
}

function differenceChart(width, colours) {
  let most = 0.05;
  for (let row = 0; row < classCount; row++) {
    for (let column = 0; column < classCount; column++) {
      most = Math.max(most, Math.abs(improvement(row, column) ?? 0));
    }
  }
  return heatMap(width, colours, {
    order: classOrder[shownOrder],
    value: improvement,
    number: (row, column) => wholePoints(changeOf(row, column)),
    hover: (row, column) =>
      `${hoverCounts(row, column)}<br>change ${points(changeOf(row, column))}`,
    scale: changeColours(colours, most),
    // Of many classes all are named where there is room.
    smallest: classCount > MANY ? (width < 700 ? 5 : 9) : 21,
    withBar: classCount > NUMBERED_UP_TO,
  });
}

function listConfusions() {
  const labels = contents.by_rarity;
  const cells = mostFrequent(
    labels.flatMap((row) =>
      labels.filter((column) => column !== row).map((column) => [row, column]),
    ),
  ).slice(0, LISTED_CONFUSIONS);
  byId("confusion-list").replaceChildren(
    cells.length
      ? tableOf(
          "The most frequent confusions",
          [
            "true class",
            element("th", { scope: "col", class: "name" }, "said to be"),
            ...confusionHeadings(),
          ],
          cells.map(([row, column]) => [
            named(className(row)),
            element("td", { class: "name" }, named(className(column))),
            ...confusionCells(row, column),
          ]),
        )
      : element("p", null, "No test image was taken for another class."),
  );
}

function confusionTables() {
  const order = classOrder[shownOrder];
  return roles.map((role) =>
    tableOf(
      `Test images by true class (rows) and what ${methods[role]} said (columns)`,
      [named(methods[role]), ...order.map((label) => named(className(label)))],
      order.map((row) => [
        named(className(row)),
        ...order.map((column) => amount(contents.confusion[role][row][column])),
      ]),
    ),
  );
}
