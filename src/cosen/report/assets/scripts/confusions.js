// Counts of confusions and how they stand in tables, for the matrices and the detail of a class.

// Counts with their share of a row's images.
function countAndRate(role, row, column) {
  const count = contents.confusion[role][row][column];
  const total = testImages[role][row];
  return { count, rate: total ? count / total : null };
}

const roles = isCompared && contents.confusion?.baseline ? ["baseline", "chosen"] : ["chosen"];
const sum = (counts) => counts.reduce((total, count) => total + count, 0);
const testImages = Object.fromEntries(
  roles.map((role) => [role, (contents.confusion?.[role] ?? []).map(sum)]),
);

// Cells of a table of confusions: the counts by each method, and the change of their share.
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
    Math.max(...roles.map((role) => contents.confusion[role][row][column]));
  return cells.filter((cell) => count(cell) > 0).sort((a, b) => count(b) - count(a));
}
