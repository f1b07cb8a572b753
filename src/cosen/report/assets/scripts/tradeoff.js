// Decisions with a shift towards rare or common classes: argmax of the logits minus the shift times
// the logarithm of the class frequencies.

const MEASURES = {
  accuracy: "overall accuracy",
  meanRecall: "mean recall",
  rareRecall: "recall of the rarest third",
};
const RANGE = Array.from({ length: 81 }, (_, i) => (i - 40) / 20); // the steps of the slider

function startTradeoff() {
  if (!contents.tradeoff) return;
  const decide = decider(contents.tradeoff);
  const atZero = decide(0);
  let now = atZero;
  let shift = 0;
  const slider = byId("shift");
  const announce = announcer(byId("shift-announced"));
  const figures = shiftFigures(atZero);
  const rows = shiftRows(atZero);
  const draw = oncePerFrame(() => {
    now = decide(shift);
    figures(now);
    rows(now);
    redraw("shift-recalls", "shift-chart");
  });
  const show = () => {
    shift = Number(slider.value);
    byId("shift-value").textContent = shiftText(shift);
    slider.setAttribute("aria-valuetext", shiftText(shift));
    draw();
  };
  const move = () => {
    show();
    announce(() => {
      const parts = Object.entries(MEASURES).map(
        ([key, name]) => `${name} ${percent(now[key])} %`,
      );
      return `Shift ${shift.toFixed(2)}: ${parts.join(", ")}`;
    });
  };
  slider.addEventListener("input", move);
  byId("shift-reset").addEventListener("click", () => {
    slider.value = 0;
    move();
  });
  addChart("shift-recalls", (width, colours) =>
    recallChart(width, colours, {
      before: atZero.recalls,
      after: now.recalls,
      names: { before: "at 0", after: "now" },
      height: 280,
      lowest: 0,
      unnamed: classCount > MANY,
    }),
  );
  let curve = null; // computed when the chart is first visible
  addChart("shift-chart", (width, colours) => {
    curve ??= RANGE.map(decide);
    return shiftChart(colours, curve, shift);
  });
  show();
}

function shiftText(shift) {
  if (shift === 0) return "0.00, the unchanged model";
  const size = Math.abs(shift).toFixed(2);
  return shift > 0 ? `+${size}, favours rare classes` : `−${size}, favours common classes`;
}

// Returns a function from a shift to its metrics. Values that do not depend on it are computed once.
function decider(tradeoff) {
  const logits = unpack(tradeoff.logits);
  const target = Uint16Array.from(unpack(tradeoff.target), Math.round);
  const totals = new Uint32Array(classCount);
  for (const label of target) totals[label]++;
  const offsets = new Float64Array(classCount);
  const rare = contents.by_rarity.slice(0, Math.max(1, Math.floor(classCount / 3)));
  return (shift) => {
    for (let label = 0; label < classCount; label++)
      offsets[label] = shift * tradeoff.log_frequencies[label];
    const right = new Uint32Array(classCount);
    let rightInAll = 0;
    for (let i = 0, start = 0; i < target.length; i++, start += classCount) {
      let best = 0;
      let highest = logits[start] - offsets[0];
      for (let label = 1; label < classCount; label++) {
        const value = logits[start + label] - offsets[label];
        if (value > highest) {
          highest = value;
          best = label;
        }
      }
      if (best === target[i]) {
        right[best]++;
        rightInAll++;
      }
    }
    const recalls = Array.from(right, (count, label) =>
      totals[label] ? count / totals[label] : null,
    );
    return {
      recalls,
      accuracy: target.length ? rightInAll / target.length : null,
      meanRecall: meanOf(recalls),
      rareRecall: meanOf(rare.map((label) => recalls[label])),
    };
  };
}

// Classes without test images have no recall and are skipped.
function meanOf(rates) {
  const known = rates.filter((rate) => rate !== null);
  return known.length ? known.reduce((sum, rate) => sum + rate, 0) / known.length : null;
}

// <data> holds the exact number next to the rounded text.
function showRate(place, rate) {
  place.value = rate ?? "";
  place.textContent = rate === null ? NO_VALUE : `${percent(rate)} %`;
}

function shiftFigures(atZero) {
  const tiles = Object.entries(MEASURES).map(([key, name]) => {
    const value = element("data", { "data-measure": key });
    const change = element("span", { class: "change" });
    const tile = element(
      "div",
      { class: "tile" },
      element("dt", null, name),
      element("dd", { class: "value" }, value),
      element("dd", { class: "before" }, `${percent(atZero[key])} % at 0 `, change),
    );
    return { key, tile, value, change };
  });
  byId("shift-figures").replaceChildren(...tiles.map(({ tile }) => tile));
  return (now) => {
    for (const { key, value, change } of tiles) {
      const moved = difference(now[key], atZero[key]);
      showRate(value, now[key]);
      change.textContent = points(moved);
      shadeChange(change, moved);
    }
  };
}

function shiftRows(atZero) {
  const rows = contents.by_rarity.map((label) => {
    const value = element("data", { "data-label": label });
    const change = element("td", { class: "change" });
    const row = element(
      "tr",
      null,
      element("th", { scope: "row" }, named(className(label))),
      element("td", null, percent(atZero.recalls[label])),
      element("td", null, value),
      change,
    );
    return { label, row, value, change };
  });
  byId("shift-table").tBodies[0].replaceChildren(...rows.map(({ row }) => row));
  return (now) => {
    for (const { label, value, change } of rows) {
      const moved = difference(now.recalls[label], atZero.recalls[label]);
      showRate(value, now.recalls[label]);
      change.textContent = points(moved);
      shadeChange(change, moved);
    }
  };
}

function shiftChart(colours, curve, shift) {
  const styles = {
    accuracy: { color: colours.ink, width: 2, dash: "dot" },
    meanRecall: { color: colours.accent, width: 3 },
    rareRecall: { color: colours.worse, width: 2, dash: "dash" },
  };
  return {
    // Accuracy equals mean recall if classes have equal sizes: draw the dotted line on top.
    data: ["meanRecall", "rareRecall", "accuracy"].map((key) => ({
      x: RANGE,
      y: curve.map((one) => (one[key] === null ? null : 100 * one[key])),
      name: MEASURES[key].replace("recall of the ", ""),
      mode: "lines",
      line: styles[key],
      hoverinfo: "text",
      hovertext: RANGE.map(
        (at, i) => `${MEASURES[key]}<br>shift ${at.toFixed(2)}: ${percent(curve[i][key])} %`,
      ),
    })),
    layout: {
      height: 320,
      margin: { l: 52, r: 12, t: 34, b: 44 },
      shapes: [
        verticalLine(colours, shift),
        ...contents.tradeoff.marks.map((mark) => ({
          ...verticalLine(colours, mark.shift),
          line: { color: colours.quiet, width: 1 },
        })),
      ],
      annotations: contents.tradeoff.marks.map((mark) => ({
        x: mark.shift,
        y: 0,
        yref: "paper",
        text: mark.name,
        textangle: -90,
        xanchor: "right",
        yanchor: "bottom",
        showarrow: false,
        font: { size: 11, color: colours.quiet },
      })),
      xaxis: axis(colours, { title: "shift", range: [-2, 2], zeroline: false }),
      yaxis: axis(colours, { title: "%", zeroline: false }),
    },
  };
}
