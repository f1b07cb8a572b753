// Reliability diagrams: the accuracy of images by their score.

function startReliability() {
  if (!contents.reliability) return;
  for (const when of ["before", "after"]) {
    addChart(`reliability-${when}`, (width, colours) =>
      reliabilityChart(colours, contents.reliability[when]),
    );
  }
  fillWhenOpened("reliability-details", reliabilityTable);
}

const binName = (bin) => `${(100 * bin.low).toFixed(0)} to ${(100 * bin.high).toFixed(0)} %`;

function reliabilityChart(colours, bins) {
  const total = bins.reduce((sum, bin) => sum + bin.count, 0) || 1;
  const bars = {
    type: "bar",
    x: bins.map((bin) => 50 * (bin.low + bin.high)),
    width: bins.map((bin) => 94 * (bin.high - bin.low)),
    hovertext: bins.map(
      (bin) =>
        `scores of ${binName(bin)}<br>mean score ${percent(bin.confidence)} %<br>` +
        `correct ${percent(bin.accuracy)} %<br>${amount(bin.count)} images`,
    ),
    hoverinfo: "text",
    showlegend: false,
  };
  return {
    data: [
      {
        ...bars,
        y: bins.map((bin) => (bin.accuracy === null ? null : 100 * bin.accuracy)),
        marker: { color: colours.accent },
      },
      {
        x: [0, 100],
        y: [0, 100],
        mode: "lines",
        line: { color: colours.ink, width: 1.5, dash: "dot" },
        hoverinfo: "skip",
        showlegend: false,
      },
      {
        ...bars,
        y: bins.map((bin) => (100 * bin.count) / total),
        yaxis: "y2",
        marker: { color: colours.bar },
      },
    ],
    layout: {
      height: 360,
      margin: { l: 58, r: 12, t: 10, b: 44 },
      xaxis: axis(colours, { title: "score, %", range: [0, 100], anchor: "y2", zeroline: false }),
      yaxis: axis(colours, { title: "correct, %", range: [0, 102], domain: [0.34, 1] }),
      yaxis2: axis(colours, {
        title: "images, %",
        domain: [0, 0.24],
        rangemode: "tozero",
        nticks: 3,
      }),
    },
  };
}

function reliabilityTable() {
  const { before, after } = contents.reliability;
  const cells = (bin) => [
    percent(bin?.confidence ?? null),
    percent(bin?.accuracy ?? null),
    amount(bin?.count ?? null),
  ];
  const headings = (when) => [`mean score ${when}`, `correct ${when}`, `images ${when}`];
  return tableOf(
    "Scores and accuracy in per cent, before and after calibration",
    ["scores", ...headings("before"), ...headings("after")],
    before.map((bin, i) => [binName(bin), ...cells(bin), ...cells(after[i])]),
  );
}
