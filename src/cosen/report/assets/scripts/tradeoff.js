// Decisions for other class shares. With calibrated logits z = o / T and offsets b, the posterior
// under shares proportional to h^(1 - t) is softmax(z + b - t log h): t is 0 for the training shares
// h, and 1 for equal shares.

const MEASURES = {
  accuracy: "overall accuracy",
  meanRecall: "mean recall",
  rareRecall: "recall of the rarest third",
};
const RANGE = Array.from({ length: 81 }, (_, i) => (i - 20) / 40); // the steps of the slider

const MARKS = [
  { name: "training shares", place: 0 },
  { name: "equal shares", place: 1 },
];

function startTradeoff() {
  if (!contents.tradeoff) return;
  const decide = decider(contents.tradeoff);
  const trained = decide(null);
  let now = trained;
  let place = null; // null is the model as it was trained
  const slider = byId("prior");
  const announce = announcer(byId("prior-announced"));
  const figures = priorFigures(trained);
  const rows = priorRows(trained);
  const draw = oncePerFrame(() => {
    now = decide(place);
    figures(now);
    rows(now);
    redraw("prior-recalls", "prior-chart");
  });
  const show = () => {
    byId("prior-value").textContent = priorText(place);
    slider.setAttribute("aria-valuetext", priorText(place));
    draw();
  };
  const move = () => {
    show();
    announce(() => {
      const parts = Object.entries(MEASURES).map(
        ([key, name]) => `${name} ${percent(now[key])} %`,
      );
      return `${priorText(place)}: ${parts.join(", ")}`;
    });
  };
  slider.addEventListener("input", () => {
    place = Number(slider.value);
    move();
  });
  byId("prior-reset").addEventListener("click", () => {
    place = null;
    slider.value = contents.tradeoff.trained;
    move();
  });
  addChart("prior-recalls", (width, colours) =>
    recallChart(width, colours, {
      before: trained.recalls,
      after: now.recalls,
      names: { before: "as trained", after: "now" },
      height: 280,
      lowest: 0,
      unnamed: classCount > MANY,
    }),
  );
  let curve = null; // computed when the chart is first visible
  addChart("prior-chart", (width, colours) => {
    curve ??= RANGE.map(decide);
    return priorChart(colours, curve, place);
  });
  show();
}

function priorText(place) {
  if (place === null) return "the model as it was trained";
  if (place === 0) return "the training shares";
  if (place === 1) return "equal shares";
  if (place < 0) return "common classes more frequent than in training";
  if (place > 1) return "rare classes more frequent than common ones";
  return `${Math.round(100 * place)} % of the way from the training shares to equal shares`;
}

// Returns a function from a place to its metrics.
function decider(tradeoff) {
  const logits = unpack(tradeoff.logits);
  const target = Uint16Array.from(unpack(tradeoff.target), Math.round);
  const totals = new Uint32Array(classCount);
  for (const label of target) totals[label]++;
  const added = new Float64Array(classCount);
  const rare = contents.by_rarity.slice(0, Math.max(1, Math.floor(classCount / 3)));
  return (place) => {
    for (let label = 0; label < classCount; label++) {
      const toShares = tradeoff.offsets[label] - place * tradeoff.log_shares[label];
      added[label] = place === null ? 0 : toShares;
    }
    const right = new Uint32Array(classCount);
    let rightInAll = 0;
    for (let i = 0, start = 0; i < target.length; i++, start += classCount) {
      let best = 0;
      let highest = logits[start] + added[0];
      for (let label = 1; label < classCount; label++) {
        const value = logits[start + label] + added[label];
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

function priorFigures(trained) {
  const tiles = Object.entries(MEASURES).map(([key, name]) => {
    const value = element("data", { "data-measure": key });
    const change = element("span", { class: "change" });
    const tile = element(
      "div",
      { class: "tile" },
      element("dt", null, name),
      element("dd", { class: "value" }, value),
      element("dd", { class: "before" }, `${percent(trained[key])} % as trained `, change),
    );
    return { key, tile, value, change };
  });
  byId("prior-figures").replaceChildren(...tiles.map(({ tile }) => tile));
  return (now) => {
    for (const { key, value, change } of tiles) {
      const moved = difference(now[key], trained[key]);
      showRate(value, now[key]);
      change.textContent = points(moved);
      shadeChange(change, moved);
    }
  };
}

function priorRows(trained) {
  const rows = contents.by_rarity.map((label) => {
    const value = element("data", { "data-label": label });
    const change = element("td", { class: "change" });
    const row = element(
      "tr",
      null,
      element("th", { scope: "row" }, named(className(label))),
      element("td", null, percent(trained.recalls[label])),
      element("td", null, value),
      change,
    );
    return { label, row, value, change };
  });
  byId("prior-table").tBodies[0].replaceChildren(...rows.map(({ row }) => row));
  return (now) => {
    for (const { label, value, change } of rows) {
      const moved = difference(now.recalls[label], trained.recalls[label]);
      showRate(value, now.recalls[label]);
      change.textContent = points(moved);
      shadeChange(change, moved);
    }
  };
}

function priorChart(colours, curve, place) {
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
        (at, i) => `${MEASURES[key]}<br>${priorText(at)}: ${percent(curve[i][key])} %`,
      ),
    })),
    layout: {
      height: 320,
      margin: { l: 52, r: 12, t: 34, b: 44 },
      shapes: [
        verticalLine(colours, place ?? contents.tradeoff.trained),
        ...MARKS.map((mark) => ({
          ...verticalLine(colours, mark.place),
          line: { color: colours.quiet, width: 1 },
        })),
      ],
      annotations: MARKS.map((mark) => ({
        x: mark.place,
        y: 0,
        yref: "paper",
        text: mark.name,
        textangle: -90,
        xanchor: "right",
        xshift: -6,
        yanchor: "bottom",
        showarrow: false,
        font: { size: 11, color: colours.quiet },
      })),
      xaxis: axis(colours, {
        title: "class shares",
        range: [-0.5, 1.5],
        zeroline: false,
        showticklabels: false,
      }),
      yaxis: axis(colours, { title: "%", zeroline: false }),
    },
  };
}
