// Errors by epoch: a thin line per seed, a thick one for the mean.

const FEW = 3; // epochs; up to this number, points are drawn too
const CURVES = { "train-curves": "train_error", "val-curves": "val_error" };

function startCurves() {
  if (!contents.curves.length) return;
  for (const [id, key] of Object.entries(CURVES)) {
    addChart(id, (width, colours) => curvesChart(colours, key));
  }
  fillWhenOpened("curves-details", curvesTable);
}

const curvesOf = (role) => contents.curves.filter((curve) => curve.role === role);
const curveRoles = ["baseline", "chosen"].filter((role) => curvesOf(role).length);

// The mean over the epochs that all seeds have: it would jump where a seed ends early.
function meanCurve(curves, key) {
  const [first, ...others] = curves.map(
    (curve) => new Map(curve.epochs.map((epoch, i) => [epoch, curve[key][i]])),
  );
  const epochs = [...first.keys()].filter((epoch) =>
    [first, ...others].every((one) => typeof one.get(epoch) === "number"),
  );
  const mean = (epoch) =>
    [first, ...others].reduce((sum, one) => sum + one.get(epoch), 0) / curves.length;
  return { epochs, values: epochs.map(mean) };
}

const inPerCent = (values) => values.map((value) => (value === null ? null : 100 * value));

function curvesChart(colours, key) {
  const data = [];
  for (const role of curveRoles) {
    const colour = role === "chosen" ? colours.accent : colours.plain;
    const curves = curvesOf(role);
    const name = labelText(curves[0].name, 24);
    if (curves.length > 1) {
      for (const curve of curves) {
        data.push({
          x: curve.epochs,
          y: inPerCent(curve[key]),
          mode: "lines",
          line: { color: colour, width: 1 },
          opacity: 0.45,
          showlegend: false,
          hoverinfo: "text",
          hovertext: curve.epochs.map(
            (epoch, i) =>
              `${name}, seed ${curve.seed}<br>epoch ${epoch}: ${percent(curve[key][i])} %`,
          ),
        });
      }
    }
    const mean = meanCurve(curves, key);
    data.push({
      x: mean.epochs,
      y: inPerCent(mean.values),
      name,
      mode: mean.epochs.length > FEW ? "lines" : "lines+markers",
      line: { color: colour, width: 3, dash: role === "chosen" ? "solid" : "dash" },
      hoverinfo: "text",
      hovertext: mean.epochs.map(
        (epoch, i) => `<b>${name}</b><br>epoch ${epoch}: ${percent(mean.values[i])} %`,
      ),
    });
  }
  return {
    data,
    layout: {
      height: 320,
      showlegend: true,
      margin: { l: 52, r: 12, t: 30, b: 44 },
      xaxis: axis(colours, { title: "epoch", zeroline: false }),
      yaxis: axis(colours, { title: "error, %", range: [0, 105 * highestError()] }),
    },
  };
}

// Both charts have the same range, to be comparable.
function highestError() {
  const all = contents.curves.flatMap((curve) => [...curve.train_error, ...curve.val_error]);
  return Math.max(0.01, ...all.filter((error) => error !== null));
}

function curvesTable() {
  const last = (errors) => errors.at(-1) ?? null;
  const lowest = (errors) => last(errors.filter((error) => error !== null).sort((a, b) => b - a));
  return tableOf(
    "Errors of each seed in its last epoch, in per cent",
    ["method", "seed", "epochs", "training error", "validation error", "lowest validation error"],
    contents.curves.map((curve) => [
      named(curve.name),
      String(curve.seed),
      String(curve.epochs.length),
      percent(last(curve.train_error)),
      percent(last(curve.val_error)),
      percent(lowest(curve.val_error)),
    ]),
  );
}
