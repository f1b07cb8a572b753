// Recall of each class before and after, the rarest first: points joined by a line that says which
// way the class went, above its number of training images. `unnamed` leaves the names to the hover:
// a hundred of them take most of the time that Plotly needs to draw.

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
        ...(unnamed && { showticklabels: false, title: "from the rarest class to the commonest" }),
        anchor: counts ? "y2" : "y",
      }),
      yaxis: axis(colours, {
        title: "recall, %",
        domain: counts ? [0.34, 1] : [0, 1],
        range: [bottom - 2, 103],
        zeroline: false,
        nticks: 6,
      }),
      yaxis2: axis(colours, {
        title: "training<br>images",
        domain: [0, 0.24],
        nticks: 3,
        rangemode: "tozero",
      }),
    },
  };
}
