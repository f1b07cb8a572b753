// The time line of the costs: which steps were accepted, and at what rate.

function stepsChart(width, colours) {
  const steps = contents.costs.steps;
  const epochs = steps.map((step) => step.epoch);
  const inPercent = (value) => (value === null ? null : 100 * value);
  const marked = (accepted, marker) => ({
    x: epochs.filter((_, i) => steps[i].accepted === accepted),
    y: steps.filter((step) => step.accepted === accepted).map((step) => inPercent(step.val_error)),
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
      {
        x: epochs,
        y: steps.map((step) => inPercent(step.best_error)),
        name: "best so far",
        mode: "lines",
        line: { color: colours.plain, width: 1.5, shape: "hv" },
        hoverinfo: "skip",
      },
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
      xaxis: axis(colours, {
        title: "epoch",
        anchor: "y2",
        zeroline: false,
        range: [Math.min(...epochs) - 0.5, Math.max(...epochs) + 0.5],
      }),
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
    "Steps of the costs",
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
