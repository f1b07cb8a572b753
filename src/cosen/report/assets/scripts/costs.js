// The learned costs by epoch, and the matrices that they are computed from.

const unpackOptional = (packed) => packed && unpackMatrices(packed);
const learned = contents.costs?.costs && {
  costs: unpackMatrices(contents.costs.costs),
  target_costs: unpackOptional(contents.costs.target_costs),
  confusion: unpackMatrices(contents.costs.confusion),
  frequencies: unpackOptional(contents.costs.frequencies),
  separability: unpackOptional(contents.costs.separability),
};
const strengths = contents.costs?.strengths; // τ and m by step, if they are learned
const STATISTICS = {
  target_costs: { symbol: "T", meaning: "target costs: ξ moves towards them" },
  frequencies: { symbol: "H", meaning: "the larger of the two class frequencies" },
  separability: { symbol: "S", meaning: "separability of the classes" },
  confusion: { symbol: "R", meaning: "confusion on validation" },
};
const PLAY_INTERVAL = 350; // milliseconds
let shownEpoch = contents.costs ? contents.costs.epochs.length - 1 : 0;
let shownStatistic = strengths ? "confusion" : "target_costs";
let isRelative = false;

const lastCost = (row, column) => learned.costs.at(contents.costs.epochs.length - 1, row, column);

function startCosts() {
  if (!contents.costs) return;
  addChart("steps-chart", strengths ? strengthsChart : stepsChart);
  fillWhenOpened("steps-details", strengths ? strengthsTable : stepsTable);
  if (!learned) return; // the matrices are too large for the page
  addChart(
    "costs-chart",
    (...room) => (isRelative ? relativeChart : matrixChart)(...room, "costs"),
    openRow,
  );
  addChart("statistic-chart", (...room) => matrixChart(...room, shownStatistic), openRow);
  const fillTable = fillWhenOpened("costs-details", costTable);
  const slider = byId("cost-epoch");
  const announce = announcer(byId("cost-announced"));
  const draw = oncePerFrame(() => {
    redraw("costs-chart", "statistic-chart", "steps-chart");
    fillTable();
  });
  const show = (epoch) => {
    shownEpoch = epoch;
    slider.value = epoch;
    slider.setAttribute("aria-valuetext", epochText());
    byId("cost-state").textContent = stateText();
    draw();
  };
  slider.addEventListener("input", () => {
    show(Number(slider.value));
    announce(stateText);
  });
  startPlayer(byId("cost-play"), show);
  startStatistics();
  show(shownEpoch);
}

const epochText = () => `epoch ${contents.costs.epochs[shownEpoch]}`;

function stateText() {
  const epoch = contents.costs.epochs[shownEpoch];
  const number = contents.costs.steps.findIndex((one) => one.epoch === epoch);
  const step = contents.costs.steps[number];
  if (!step) return epochText();
  const outcome = step.accepted ? "accepted" : "rejected";
  const facts = strengths ? strengthsText(number) : `${outcome}, γ ${significant(step.cost_lr)}`;
  return `${epochText()}: ${facts}, validation error ${percent(step.val_error)} %`;
}

function startPlayer(button, show) {
  const last = contents.costs.epochs.length - 1;
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = "Play";
  };
  const advance = () => {
    show(Math.min(last, shownEpoch + 1));
    if (shownEpoch === last) stop();
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (shownEpoch === last) show(0);
    timer = setInterval(advance, PLAY_INTERVAL);
    button.textContent = "Pause";
  });
  byId("cost-epoch").addEventListener("input", stop);
}

function startStatistics() {
  const explain = () => {
    byId("statistic-meaning").textContent = STATISTICS[shownStatistic].meaning;
  };
  for (const choice of document.querySelectorAll('input[name="statistic"]')) {
    choice.addEventListener("change", () => {
      shownStatistic = choice.value;
      explain();
      redraw("statistic-chart");
    });
  }
  explain();
  for (const choice of document.querySelectorAll('input[name="reading"]')) {
    choice.addEventListener("change", () => {
      isRelative = choice.value === "relative";
      redraw("costs-chart");
    });
  }
}

// The range over all epochs: colours keep their meaning while the slider moves.
const ranges = new Map();

function rangeOf(name) {
  if (!ranges.has(name)) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of learned[name].values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    ranges.set(name, [Math.max(low, 1e-9), high]);
  }
  return ranges.get(name);
}

function matrixChart(width, colours, name) {
  const symbol = STATISTICS[name]?.symbol ?? "ξ";
  const isShare = name === "confusion";
  const at = (row, column) => learned[name].at(shownEpoch, row, column);
  const written = (value) => (isShare ? `${percent(value)} %` : significant(value));
  return heatMap(width, colours, {
    order: classOrder[shownOrder],
    value: at,
    number: isShare
      ? (row, column) => labelText(wholePercent(at(row, column)))
      : (row, column) => cellNumber(at(row, column)),
    hover: (row, column) => `${cellName(row, column)}<br>${symbol} ${written(at(row, column))}`,
    scale: isShare ? shareColours(colours) : factorColours(...rangeOf(name)),
    smallest: classCount > MANY ? 4 : 21,
    withBar: true,
    numberRoom: 29,
  });
}

// Each row divided by its diagonal: how much more a mistake costs than a correct prediction.
function relativeChart(width, colours) {
  const at = (row, column) =>
    learned.costs.at(shownEpoch, row, column) / learned.costs.at(shownEpoch, row, row);
  return heatMap(width, colours, {
    order: classOrder[shownOrder],
    value: at,
    number: (row, column) => (row === column ? "1" : cellNumber(at(row, column))),
    hover: (row, column) =>
      `${cellName(row, column)}<br>ξ relative to the diagonal: × ${significant(at(row, column))}`,
    scale: ratioColours(colours, largestRatio()),
    smallest: classCount > MANY ? 4 : 21,
    withBar: true,
    numberRoom: 29,
  });
}

// Over all epochs: colours keep their meaning.
function largestRatio() {
  if (!ranges.has("ratio")) {
    let most = 1.5;
    for (let epoch = 0; epoch < contents.costs.epochs.length; epoch++) {
      for (let row = 0; row < classCount; row++) {
        const own = learned.costs.at(epoch, row, row);
        for (let column = 0; column < classCount; column++) {
          const ratio = learned.costs.at(epoch, row, column) / own;
          most = Math.max(most, ratio, 1 / ratio);
        }
      }
    }
    ranges.set("ratio", most);
  }
  return ranges.get("ratio");
}

// Two digits without a leading zero, to fit a cell of 30 pixels.
function cellNumber(value) {
  if (value < 0.001) return value.toExponential(0).replace("e-", "e−");
  return String(Number(value.toPrecision(2))).replace(/^0/, "");
}

function costTable() {
  const order = classOrder[shownOrder];
  return tableOf(
    `Costs after ${epochText()}, by true class (rows) and predicted class (columns)`,
    ["true class", ...order.map((label) => named(className(label)))],
    order.map((row) => [
      named(className(row)),
      ...order.map((column) => significant(learned.costs.at(shownEpoch, row, column))),
    ]),
  );
}
