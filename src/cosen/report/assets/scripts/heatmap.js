// Heat maps of classes by classes: confusions and costs.

const NUMBERED_UP_TO = 12; // classes; the cells of larger matrices are too small for numbers
const MANY = 20;

// Colours of shares, by their square root: a confusion of 2 % stays visible.
function shareColours(colours) {
  const ticks = [0, 0.01, 0.05, 0.2, 0.5, 1];
  return {
    colorscale: colours.shareScale,
    zmin: 0,
    zmax: 1,
    place: Math.sqrt,
    tickvals: ticks.map(Math.sqrt),
    ticktext: ticks.map((tick) => `${100 * tick} %`),
  };
}

// Colours of a change: worse below 0, better above.
function changeColours(colours, most) {
  const ticks = [-most, -most / 2, 0, most / 2, most];
  return {
    colorscale: colours.changeScale,
    zmin: -most,
    zmax: most,
    place: (value) => value,
    tickvals: ticks,
    ticktext: ticks.map((tick) => `${points(Math.abs(tick)).replace("+", "")}`),
  };
}

// Colours of costs, by their logarithm.
function factorColours(low, high) {
  const ticks = [];
  for (let power = -9; power <= 3; power++) {
    for (const first of [1, 2, 5]) ticks.push(Number(`${first}e${power}`));
  }
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const kept =
    inside.length > 7 ? inside.filter((tick) => /^1/.test(tick.toExponential())) : inside;
  return {
    colorscale: "Cividis",
    zmin: Math.log10(low),
    zmax: Math.log10(Math.max(high, low * 1.001)),
    place: (value) => Math.log10(Math.max(value, low)),
    tickvals: kept.map(Math.log10),
    ticktext: kept.map(String),
  };
}

// Colours of factors around 1.
function ratioColours(colours, most) {
  const ticks = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1000];
  const inside = ticks.filter((tick) => tick <= most && tick >= 1 / most);
  return {
    colorscale: colours.changeScale,
    zmin: -Math.log10(most),
    zmax: Math.log10(most),
    place: Math.log10,
    tickvals: inside.map(Math.log10),
    ticktext: inside.map((tick) => `× ${tick}`),
  };
}

// `value(row, column)` sets the colour of a cell, `number` its text and `hover` its tooltip.
// `smallest` is the minimum width of a cell: a larger matrix scrolls, except on paper. `numberRoom`
// is the minimum width of a cell with a text.
function heatMap(
  width,
  colours,
  { order, value, number, hover, scale, smallest, withBar, numberRoom = 21 },
) {
  const size = order.length;
  const dense = size > MANY;
  const fontSize = dense ? 9 : 11;
  const left = classTicks(order, 99, colours, { upright: false, size: fontSize }).room + 22;
  const right = 8;
  const least = isPrinting() ? 0 : size * smallest + left + right;
  const whole = Math.max(width, least);
  const cell = (whole - left - right) / size;
  const below = classTicks(order, cell, colours, { size: fontSize });
  const beside = classTicks(order, cell, colours, { upright: false, size: fontSize });
  const top = withBar ? 44 : 6;
  const bottom = below.room + 34;
  const cells = (make) => order.map((row) => order.map((column) => make(row, column)));
  const isNumbered = size <= NUMBERED_UP_TO && cell >= numberRoom;
  const trace = {
    type: "heatmap",
    z: cells((row, column) => {
      const one = value(row, column);
      return one === null ? null : scale.place(one);
    }),
    hovertext: cells((row, column) => hover(row, column)),
    hoverinfo: "text",
    colorscale: scale.colorscale,
    zmin: scale.zmin,
    zmax: scale.zmax,
    xgap: dense ? 0 : 1,
    ygap: dense ? 0 : 1,
    showscale: withBar,
    colorbar: {
      orientation: "h",
      x: 0.5,
      y: 1,
      yanchor: "bottom",
      len: 1,
      thickness: 8,
      outlinewidth: 0,
      ypad: 6,
      tickvals: scale.tickvals,
      ticktext: scale.ticktext,
      tickfont: { size: 10, color: colours.quiet },
      ticks: "",
    },
  };
  if (isNumbered) {
    trace.text = cells(number);
    trace.texttemplate = "%{text}";
    trace.textfont = { size: cell >= 30 ? 11 : 10 };
  }
  return {
    data: [trace],
    layout: {
      width: whole,
      height: cell * size + top + bottom,
      margin: { l: left, r: right, t: top, b: bottom },
      xaxis: axis(colours, { title: "predicted class", ...below.ticks }),
      yaxis: axis(colours, {
        title: "true class",
        ...beside.ticks,
        range: [size - 0.5, -0.5],
      }),
    },
  };
}

// Names the two classes of a cell.
function cellName(row, column) {
  const truth = classLabels[row];
  return row === column
    ? `${truth}, correct`
    : `${truth}<br>predicted as ${classLabels[column]}`;
}
