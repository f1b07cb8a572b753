// Draws a chart when it is almost visible, and again when the width, the colours or the data
// change. Before printing, all charts are drawn in light colours at the width of the paper.

const charts = new Map();
const PLOTLY_OPTIONS = { displayModeBar: false, doubleClick: false, showTips: false };

// `describe(width, colours)` returns Plotly's `data` and `layout`. The layout has a height, and a
// width if the chart is wider than its container.
function addChart(id, describe, { onClick } = {}) {
  const place = byId(id);
  if (!place) return;
  charts.set(id, { place, describe, onClick, isNear: false, isStale: true, drawnWidth: null });
  nearView.observe(place);
  widths.observe(place.parentElement);
}

function drawChart(chart) {
  const room = chart.place.parentElement.clientWidth;
  if (!room) return; // hidden
  const colours = palette();
  const { data, layout } = chart.describe(room, colours);
  const whole = { ...commonLayout(colours), width: room, ...layout };
  chart.place.style.width = `${whole.width}px`;
  Plotly.react(chart.place, data, whole, PLOTLY_OPTIONS);
  chart.place.classList.add("drawn");
  if (chart.onClick && chart.drawnWidth === null) chart.place.on("plotly_click", chart.onClick);
  chart.drawnWidth = room;
  chart.isStale = false;
}

function redraw(...ids) {
  for (const id of ids) {
    const chart = charts.get(id);
    if (!chart) continue;
    if (chart.isNear) drawChart(chart);
    else chart.isStale = true;
  }
}

const redrawAll = () => redraw(...charts.keys());

const nearView = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      const chart = charts.get(target.id);
      chart.isNear = isIntersecting;
      if (chart.isNear && chart.isStale) drawChart(chart);
    }
  },
  { rootMargin: "600px" },
);

const widths = new ResizeObserver((entries) => {
  if (isPrinting()) return;
  const changed = entries
    .map(({ target }) => charts.get(target.firstElementChild.id))
    .filter(({ drawnWidth, place }) => drawnWidth && drawnWidth !== place.parentElement.clientWidth)
    .map(({ place }) => place.id);
  if (changed.length) requestAnimationFrame(() => redraw(...changed));
});

function commonLayout(colours) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, size: 12, color: colours.ink },
    margin: { l: 56, r: 12, t: 12, b: 44 },
    dragmode: false,
    hovermode: "closest",
    hoverlabel: {
      bgcolor: colours.surface,
      bordercolor: colours.quiet,
      font: { family: colours.font, size: 12, color: colours.ink },
      align: "left",
    },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", font: { size: 12 } },
  };
}

// An axis that cannot be dragged: a finger on a chart scrolls the page.
function axis(colours, { title, ...more } = {}) {
  return {
    fixedrange: true,
    gridcolor: colours.line,
    linecolor: colours.line,
    zerolinecolor: colours.line,
    tickfont: { size: 11, color: colours.quiet },
    title: { text: title ?? "", font: { size: 12, color: colours.quiet }, standoff: 14 },
    ...more,
  };
}

// Marks the position of a slider.
function verticalLine(colours, x) {
  return {
    type: "line",
    xref: "x",
    yref: "paper",
    x0: x,
    x1: x,
    y0: 0,
    y1: 1,
    line: { color: colours.accent, width: 1.5, dash: "dot" },
  };
}

const pen = document.createElement("canvas").getContext("2d");

// Ticks of an axis with one class per integer. Names are shortened, turned if they do not fit, and
// skipped if there are too many. `room` is the space that they need across the axis, in pixels.
function classTicks(order, spacing, colours, { upright = true, size = 11 } = {}) {
  pen.font = `${size}px ${colours.font}`;
  const texts = order.map((label) => shorten(className(label), 16));
  const longest = Math.max(...texts.map((text) => pen.measureText(text).width));
  const turned = upright && longest > spacing - 6;
  const step = upright && !turned ? 1 : Math.max(1, Math.ceil((size + 1) / spacing - 0.05));
  const positions = order.map((_, i) => i).filter((i) => i % step === 0);
  return {
    room: Math.ceil(turned || !upright ? longest : size) + 10,
    ticks: {
      tickmode: "array",
      tickvals: positions,
      ticktext: positions.map((i) => labelText(className(order[i]), 16)),
      tickangle: turned ? -90 : 0,
      tickfont: { size, color: colours.quiet },
      range: [-0.5, order.length - 0.5],
      showgrid: false,
      zeroline: false,
      ticks: "",
      ticklabeloverflow: "allow", // hiding names would double the time Plotly needs
    },
  };
}

function startCharts() {
  themeListeners.push(redrawAll);
  const print = () => {
    if (isPrinting()) return;
    root.classList.add("printing");
    for (const chart of charts.values()) drawChart(chart);
  };
  const restore = () => {
    if (!isPrinting()) return;
    root.classList.remove("printing");
    redrawAll();
  };
  addEventListener("beforeprint", print);
  addEventListener("afterprint", restore);
  // Emulated print media send no print event.
  matchMedia("print").addEventListener("change", ({ matches }) => (matches ? print() : restore()));
}
