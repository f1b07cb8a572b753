// Confusion matrices, their difference, and tables of confusions.

const roles = isCompared && contents.confusion?.baseline ? ["baseline", "chosen"] : ["chosen"];
const hasMatrices = Array.isArray(contents.confusion?.chosen);
const confusions = Object.fromEntries(roles.map((role) => [role, countsOf(role)]));

// The counts of a method by cell, row * classCount + column, without zeros. A matrix of many
// classes is stored as a list of rows, columns and counts.
function countsOf(role) {
  const counts = new Map();
  const given = contents.confusion?.[role] ?? [];
  if (hasMatrices) {
    given.forEach((row, truth) =>
      row.forEach((count, predicted) => count && counts.set(truth * classCount + predicted, count)),
    );
  } else {
    for (let i = 0; i < given.cells.length; i += 3) {
      counts.set(given.cells[i] * classCount + given.cells[i + 1], given.cells[i + 2]);
    }
  }
  return counts;
}

function countOf(role, row, column) {
  return confusions[role].get(row * classCount + column) ?? 0;
}

// Test images of a class, over all seeds.
function testImages(row) {
  return Math.round(contents.classes[row].test * contents.seeds.length); // a mean over seeds
}

// A count and its share of the row.
function countAndRate(role, row, column) {
  const count = countOf(role, row, column);
  const total = testImages(row);
  return { count, rate: total ? count / total : null };
}

// The counts of each method and the change of their share, as table cells.
function confusionCells(row, column) {
  const all = roles.map((role) => countAndRate(role, row, column));
  const cells = all.map(({ count, rate }) =>
    element(
      "td",
      null,
      `${amount(count)} `,
      element("span", { class: "spread" }, `${percent(rate)} %`),
    ),
  );
  if (all.length === 2) {
    const better = row === column ? 1 : -1;
    cells.push(changeCell(difference(all[1].rate, all[0].rate), { better }));
  }
  return cells;
}

const confusionHeadings = () => [
  ...roles.map((role) => named(methods[role])),
  ...(roles.length === 2 ? ["change"] : []),
];

function mostFrequent(cells) {
  const count = ([row, column]) =>
    Math.max(...roles.map((role) => countOf(role, row, column)));
  return cells.filter((cell) => count(cell) > 0).sort((a, b) => count(b) - count(a));
}

const LISTED_CONFUSIONS = 12;
const classOrder = { rarity: contents.by_rarity, label: contents.classes.map((_, label) => label) };
let shownOrder = "rarity";

function startMatrices() {
  if (!contents.confusion) return;
  listConfusions();
  if (!hasMatrices) return;
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

// Per cent without decimals; empty for 0, to make confusions easy to see.
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

// Positive if better: more on the diagonal, less elsewhere.
function improvement(row, column) {
  const change = changeOf(row, column);
  return change === null || row === column ? change : -change;
}

// A change in points without decimals; empty for 0.
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
    // Wide enough to name all of many classes, if there is room.
    smallest: classCount > MANY ? (width < 700 ? 5 : 9) : 21,
    withBar: classCount > NUMBERED_UP_TO,
  });
}

function listConfusions() {
  const found = new Set(roles.flatMap((role) => [...confusions[role].keys()]));
  const cells = mostFrequent(
    [...found]
      .map((cell) => [Math.floor(cell / classCount), cell % classCount])
      .filter(([row, column]) => row !== column)
      .sort((a, b) => rarityRank[a[0]] - rarityRank[b[0]] || rarityRank[a[1]] - rarityRank[b[1]]),
  ).slice(0, LISTED_CONFUSIONS);
  byId("confusion-list").replaceChildren(
    cells.length
      ? tableOf(
          "Most frequent confusions",
          [
            "true class",
            element("th", { scope: "col", class: "name" }, "predicted class"),
            ...confusionHeadings(),
          ],
          cells.map(([row, column]) => [
            named(className(row)),
            element("td", { class: "name" }, named(className(column))),
            ...confusionCells(row, column),
          ]),
        )
      : element("p", null, "All predictions are correct."),
  );
}

function confusionTables() {
  const order = classOrder[shownOrder];
  return roles.map((role) =>
    tableOf(
      `Test images by true class (rows) and prediction of ${methods[role]} (columns)`,
      [named(methods[role]), ...order.map((label) => named(className(label)))],
      order.map((row) => [
        named(className(row)),
        ...order.map((column) => amount(countOf(role, row, column))),
      ]),
    ),
  );
}
