// The steps of the costs: accepted or rejected with the step size γ, or the values of τ and m.

function bestSoFar(steps, colours) {
  return {
    x: steps.map((step) => step.epoch),
    y: inPerCent(steps.map((step) => step.best_error)),
    name: "best so far",
    mode: "lines",
    line: { color: colours.plain, width: 1.5, shape: "hv" },
    hoverinfo: "skip",
  };
}

// The axis of several charts above each other, below the last one.
function epochAxis(epochs, colours, anchor) {
  return axis(colours, {
    title: "epoch",
    anchor,
    zeroline: false,
    range: [Math.min(...epochs) - 0.5, Math.max(...epochs) + 0.5],
  });
}

function stepsChart(width, colours) {
  const steps = contents.costs.steps;
  const epochs = steps.map((step) => step.epoch);
  const marked = (accepted, marker) => ({
    x: epochs.filter((_, i) => steps[i].accepted === accepted),
    y: inPerCent(steps.filter((step) => step.accepted === accepted).map((step) => step.val_error)),
    name: accepted ? "accepted" : "rejected",
    mode: "markers",
    marker,
    hovertext: steps
      .filter((step) => step.accepted === accepted)
      .map(
        (step) =>
          `epoch ${step.epoch}, ${accepted ? "accepted" : "rejected"}<br>validation error ` +
          `${percent(step.val_error)} %, best ${percent(step.best_error)} %<br>` +
          `γ ${significant(step.cost_lr)}`,
      ),
    hoverinfo: "text",
  });
  return {
    data: [
      bestSoFar(steps, colours),
      marked(true, { color: colours.accent, size: 8 }),
      marked(false, {
        color: colours.worse,
        size: 8,
        symbol: "x-thin",
        line: { color: colours.worse, width: 2 },
      }),
      {
        x: epochs,
        y: steps.map((step) => step.cost_lr),
        yaxis: "y2",
        name: "γ",
        showlegend: false,
        mode: "lines",
        line: { color: colours.ink, width: 1.5, shape: "hv" },
        hovertext: steps.map((step) => `epoch ${step.epoch}<br>γ ${significant(step.cost_lr)}`),
        hoverinfo: "text",
      },
    ],
    layout: {
      height: 360,
      margin: { l: 58, r: 12, t: 34, b: 44 },
      shapes: [verticalLine(colours, contents.costs.epochs[shownEpoch])],
      xaxis: epochAxis(epochs, colours, "y2"),
      yaxis: axis(colours, { title: "validation error, %", domain: [0.4, 1], rangemode: "tozero" }),
      yaxis2: axis(colours, {
        title: "γ<sub>ξ</sub>",
        domain: [0, 0.28],
        type: "log",
        exponentformat: "power",
        nticks: 4,
      }),
    },
  };
}

function stepsTable() {
  return tableOf(
    "Cost steps",
    ["epoch", "outcome", "validation error, %", "best, %", "γ"],
    contents.costs.steps.map((step) => [
      String(step.epoch),
      step.accepted ? "accepted" : "rejected",
      percent(step.val_error),
      percent(step.best_error),
      significant(step.cost_lr),
    ]),
  );
}

const strengthsText = (number) =>
  `τ ${significant(strengths.tau[number])}, m ${significant(strengths.margin[number])}`;

function strengthsChart(width, colours) {
  const steps = contents.costs.steps;
  const epochs = steps.map((step) => step.epoch);
  const hovertext = steps.map(
    (step, number) =>
      `epoch ${step.epoch}<br>validation error ${percent(step.val_error)} %, best ` +
      `${percent(step.best_error)} %<br>${strengthsText(number)}`,
  );
  const line = (name, values, yaxis) => ({
    x: epochs,
    y: values,
    yaxis,
    name,
    showlegend: false,
    mode: "lines+markers",
    line: { color: colours.ink, width: 1.5 },
    marker: { size: 4 },
    hovertext,
    hoverinfo: "text",
  });
  return {
    data: [
      bestSoFar(steps, colours),
      {
        x: epochs,
        y: inPerCent(steps.map((step) => step.val_error)),
        name: "validation error",
        mode: "markers",
        marker: { color: colours.accent, size: 8 },
        hovertext,
        hoverinfo: "text",
      },
      line("τ", strengths.tau, "y2"),
      line("m", strengths.margin, "y3"),
    ],
    layout: {
      height: 440,
      margin: { l: 58, r: 12, t: 34, b: 44 },
      shapes: [verticalLine(colours, contents.costs.epochs[shownEpoch])],
      xaxis: epochAxis(epochs, colours, "y3"),
      yaxis: axis(colours, {
        title: "validation error, %",
        domain: [0.56, 1],
        rangemode: "tozero",
      }),
      yaxis2: axis(colours, { title: "τ", domain: [0.28, 0.48], rangemode: "tozero", nticks: 4 }),
      yaxis3: axis(colours, { title: "m", domain: [0, 0.2], rangemode: "tozero", nticks: 4 }),
    },
  };
}

function strengthsTable() {
  return tableOf(
    "Cost steps",
    ["epoch", "validation error, %", "best, %", "τ", "m"],
    contents.costs.steps.map((step, number) => [
      String(step.epoch),
      percent(step.val_error),
      percent(step.best_error),
      significant(strengths.tau[number]),
      significant(strengths.margin[number]),
    ]),
  );
}
