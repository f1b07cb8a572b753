// Upload images, and decide again in the page when class shares or costs change.

const MOST_SHARES = 30; // classes with a field for their share
const MOST_COSTS = 20;
const LISTED = 5;
const MOST_NAMES = 20; // in a set; a count above
const AT_ONCE = 8; // images in a request

let model = null;
let shares = null; // of each class; null to use the outputs as they are
let costs = null; // row = true class; null if all mistakes are equal
let inEverySet = new Set(); // classes with too few validation images
const entries = [];

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.001 ? 2 : 1)} %`;
const sum = (values) => values.reduce((total, value) => total + value, 0);

function softmax(values) {
  const top = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - top));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

// The mean posterior of all models, as on the server.
function posterior(outputs, wanted) {
  const each = outputs.map((own, number) => {
    const { offsets, training_shares: trained } = model.models[number];
    if (!wanted) return softmax(own);
    const total = sum(wanted);
    return softmax(
      own.map((value, n) => value + offsets[n] + Math.log(wanted[n] / total / trained[n])),
    );
  });
  return model.classes.map((_, n) => sum(each.map((own) => own[n])) / each.length);
}

function trainingShares() {
  const all = model.models.map((one) => one.training_shares);
  return model.classes.map((_, n) => sum(all.map((own) => own[n])) / all.length);
}

function cheapest(probabilities) {
  const expected = model.classes.map((_, n) =>
    sum(probabilities.map((share, p) => share * costs[p][n])),
  );
  return expected.indexOf(Math.min(...expected));
}

// The decision of the server counts until shares or costs change in the page.
const isChanged = () => shares !== model.shares || costs !== model.costs;

function decided({ result }) {
  const wanted = shares ?? (costs ? trainingShares() : null);
  const probabilities = posterior(result.outputs, wanted);
  const best = probabilities.indexOf(Math.max(...probabilities));
  const own = costs ? cheapest(probabilities) : best;
  const label = isChanged() ? own : model.classes.indexOf(result.class);
  const review = isChanged() ? undefined : result.review;
  return { label, probabilities, review };
}

function bars(probabilities) {
  const order = model.classes.map((_, n) => n).sort((a, b) => probabilities[b] - probabilities[a]);
  const list = element("dl", { class: "bars" });
  for (const n of order.slice(0, LISTED)) {
    const fill = element("i");
    fill.style.width = `${100 * probabilities[n]}%`;
    list.append(
      element("dt", { title: model.classes[n] }, named(model.classes[n])),
      element("dd", { class: "track", "aria-hidden": "true" }, fill),
      element("dd", null, percent(probabilities[n])),
    );
  }
  return list;
}

function picture(entry) {
  const image = element("img", { src: entry.url, alt: "" });
  const frame = element("div", { class: "picture" }, image);
  image.addEventListener("error", () => frame.remove());
  const found = entry.result?.map;
  if (found) {
    const overlay = element("img", { class: "map", alt: "", src: found.picture });
    const [left, top, right, bottom] = found.box.map((share) => 100 * share);
    overlay.style.left = `${left}%`;
    overlay.style.top = `${top}%`;
    overlay.style.width = `${right - left}%`;
    overlay.style.height = `${bottom - top}%`;
    overlay.title = `Where the network looked for ${found.class}`;
    frame.append(overlay);
  }
  return frame;
}

function setText(names) {
  const [sure, others] = [false, true].map((wanted) => {
    const found = names.filter((name) => inEverySet.has(name) === wanted);
    return found.length > MOST_NAMES ? `${found.length} classes` : found.join(", ");
  });
  const text = `${Math.round(100 * model.coverage)} % set: ${sure || (others ? "" : "none")}`;
  if (!others) return text;
  return `${text}${sure ? "; also " : ""}${others} (too few validation images to exclude)`;
}

function show(entry) {
  const parts = [element("p", { class: "file" }, named(entry.file.name))];
  if (entry.error) {
    parts.push(element("p", { class: "problem" }, entry.error));
  } else if (!entry.result) {
    parts.push(element("p", { class: "quiet" }, "Waiting"));
  } else {
    const { label, probabilities, review } = decided(entry);
    parts.push(element("p", { class: "decision" }, named(model.classes[label])));
    parts.push(bars(probabilities));
    if (review) parts.push(element("p", { class: "problem" }, "A person should check this image"));
    if (entry.result.classes) {
      parts.push(element("p", { class: "quiet" }, setText(entry.result.classes)));
    }
    const looked = entry.result.map?.class;
    if (looked !== undefined && looked !== model.classes[label]) {
      const note = ["The network looked for ", named(looked), ", its largest output"];
      parts.push(element("p", { class: "quiet looked" }, ...note));
    }
  }
  entry.text.replaceChildren(...parts);
}

const showAll = oncePerFrame(() => {
  entries.filter((entry) => entry.result).forEach(show);
});

async function send(group) {
  const form = new FormData();
  form.append("details", "true");
  for (const entry of group) form.append("images", entry.file, entry.file.name);
  try {
    const response = await fetch("predict", { method: "POST", body: form });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    group.forEach((entry, place) => {
      const found = answer.images[place];
      if (found.error) entry.error = found.error;
      else entry.result = found;
      entry.card.replaceChildren(picture(entry), entry.text);
    });
  } catch (problem) {
    for (const entry of group) entry.error = `Not predicted: ${problem.message}`;
  }
  group.forEach(show);
}

async function add(files) {
  const given = [...files]; // before the list is emptied
  await ready;
  if (!given.length || !model) return;
  const added = given.map((file) => ({
    file,
    url: URL.createObjectURL(file),
    card: element("article", { class: "card" }),
    text: element("div", { class: "text" }),
  }));
  entries.push(...added);
  for (const entry of added) {
    show(entry);
    entry.card.append(picture(entry), entry.text);
    byId("results").append(entry.card);
  }
  byId("tools").hidden = false;
  let done = 0;
  for (const group of groupsOf(added)) {
    byId("status").textContent = `Predicting ${done + 1} of ${added.length} images`;
    await send(group);
    done += group.length;
  }
  summarise();
}

// Groups that keep the limits of a request; a file that is too large is alone in its group.
function groupsOf(added) {
  const { max_images: most, max_bytes: room } = model.limits;
  const groups = [];
  let bytes = 0;
  for (const entry of added) {
    const group = groups.at(-1);
    const fits = group && group.length < Math.min(AT_ONCE, most);
    if (fits && bytes + entry.file.size < 0.9 * room) {
      group.push(entry);
      bytes += entry.file.size;
    } else {
      groups.push([entry]);
      bytes = entry.file.size;
    }
  }
  return groups;
}

function summarise() {
  const done = entries.filter((entry) => entry.result).length;
  const failed = entries.filter((entry) => entry.error).length;
  const problems = failed ? `, ${failed} could not be predicted` : "";
  byId("status").textContent = entries.length ? `${done} ${done === 1 ? "image" : "images"} predicted${problems}` : "";
}

function clear() {
  for (const entry of entries) URL.revokeObjectURL(entry.url);
  entries.length = 0;
  byId("results").replaceChildren();
  byId("tools").hidden = true;
  byId("files").value = "";
  summarise();
}

// A cell that a spreadsheet would run as a formula gets an apostrophe.
function cell(value) {
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function asCsv() {
  const lines = [["image", "class", "probability", "set", ...model.classes]];
  for (const entry of entries.filter((one) => one.result)) {
    const { label, probabilities } = decided(entry);
    lines.push([
      entry.file.name,
      model.classes[label],
      probabilities[label].toFixed(6),
      (entry.result.classes ?? []).join("; "),
      ...probabilities.map((share) => share.toFixed(6)),
    ]);
  }
  return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

function download() {
  const url = URL.createObjectURL(new Blob([asCsv()], { type: "text/csv" }));
  element("a", { href: url, download: "predictions.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Fields of numbers in a table; `use` is called with the label of a changed field and its number.
function numberField(name, value, use) {
  const field = element("input", { type: "number", min: "0", step: "any", value: String(value) });
  field.setAttribute("aria-label", name);
  field.addEventListener("input", () => {
    const number = field.valueAsNumber;
    const isValid = Number.isFinite(number) && number >= 0;
    field.setAttribute("aria-invalid", String(!isValid));
    if (isValid) use(number);
  });
  return field;
}

const shareFields = [];
const isLike = (one, other) => one?.every((share, n) => Math.abs(share - other?.[n]) < 1e-6);
const normalised = (values) => values.map((value) => value / sum(values));

// Uses these shares, or the outputs as they are; `place` is that of the slider, if it has one.
function useShares(wanted, place = null) {
  shares = isLike(wanted, model.shares) ? model.shares : wanted;
  const current = shares ?? trainingShares();
  shareFields.forEach((field, n) => {
    if (document.activeElement !== field) {
      field.value = String(Number((100 * current[n]).toPrecision(3)));
    }
  });
  if (shares === null) byId("prior").value = costs ? 0 : 100 * model.trained_place;
  else if (place !== null) byId("prior").value = place;
  byId("prior-text").textContent = sharesText(place);
  byId("rule-note").hidden = !model.rule || !isChanged();
  showAll();
}

function sharesText(place) {
  if (shares === null && costs) return "Training shares, because costs need real shares";
  if (shares === null) return "The outputs are used as they are.";
  if (place === null) return `${shares === model.shares ? "The server's" : "Your own"} shares are used.`;
  if (place === 0) return "Training shares";
  return place === 100 ? "Equal shares" : `${place} % of the way to equal shares`;
}

function useSlider(place) {
  useShares(normalised(trainingShares().map((share) => share ** (1 - place / 100))), place);
}

// One share changes; the others keep their ratios.
function useShare(n, percentage) {
  const share = Math.min(0.9999, Math.max(1e-6, percentage / 100));
  const others = (shares ?? trainingShares()).map((value, m) => (m === n ? 0 : value));
  const rest = sum(others);
  useShares(others.map((value, m) => (m === n ? share : (value / rest) * (1 - share))));
}

function makeShares() {
  if (model.classes.length > 1 && model.classes.length <= MOST_SHARES) {
    const rows = model.classes.map((name, n) => {
      const field = numberField(`Share of ${name} in per cent`, 0, (value) => useShare(n, value));
      shareFields.push(field);
      const title = element("th", { title: name, scope: "row" }, named(name));
      return element("tr", null, title, element("td", null, field, " %"));
    });
    const table = element("table", null, ...rows);
    byId("shares").replaceChildren(element("div", { class: "numbers" }, table));
  }
  byId("prior").addEventListener("input", () => useSlider(Number(byId("prior").value)));
  byId("training-shares").addEventListener("click", () => useSlider(0));
  byId("equal-shares").addEventListener("click", () => useSlider(100));
  byId("as-trained").addEventListener("click", () => useShares(null));
}

// The place of shares on the slider; null for shares of another kind.
function placeOf(wanted = shares) {
  if (isLike(wanted, trainingShares())) return 0;
  if (isLike(wanted, model.classes.map(() => 1 / model.classes.length))) return 100;
  const place = Number(byId("prior").value);
  const shown = normalised(trainingShares().map((share) => share ** (1 - place / 100)));
  return isLike(wanted, shown) ? place : null;
}

let showCosts = () => {};

function useCosts(wanted) {
  costs = wanted;
  showCosts();
  useShares(shares, placeOf());
}

function makeCosts() {
  const { classes } = model;
  if (classes.length > MOST_COSTS) {
    byId("costs-note").textContent =
      `The table is for up to ${MOST_COSTS} classes. With more, start the server with --misclassification-costs.`;
    byId("equal-costs").hidden = true;
    return;
  }
  showCosts = () => {
    const table = classes.map((_, p) => classes.map((__, n) => costs?.[p][n] ?? Number(p !== n)));
    const head = element(
      "tr",
      null,
      element("td"),
      ...classes.map((name) => element("th", { scope: "col", title: name }, named(name))),
    );
    const rows = classes.map((name, p) =>
      element(
        "tr",
        null,
        element("th", { scope: "row", title: name }, named(name)),
        ...classes.map((other, n) =>
          element(
            "td",
            null,
            numberField(`Cost of ${other} for a true ${name}`, table[p][n], (number) => {
              table[p][n] = number;
              costs = table;
              useShares(shares, placeOf());
            }),
          ),
        ),
      ),
    );
    byId("costs").replaceChildren(
      element("div", { class: "numbers costs", tabindex: "0", role: "region", "aria-label": "Costs of mistakes" },
        element("table", null, head, ...rows)),
    );
  };
  byId("equal-costs").addEventListener("click", () => useCosts(null));
  showCosts();
}

function listen() {
  const drop = byId("drop");
  byId("files").addEventListener("change", (event) => add(event.target.files));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => add(event.clipboardData.files));
  byId("maps").addEventListener("change", (event) =>
    byId("results").classList.toggle("hide-maps", !event.target.checked),
  );
  byId("download").addEventListener("click", download);
  byId("clear").addEventListener("click", clear);
}

async function start() {
  startTheme();
  listen(); // images may come before the model
  const response = await fetch("model");
  model = await response.json();
  costs = model.costs;
  inEverySet = new Set(model.in_every_set);
  document.title = `${model.name} – cosen`;
  byId("title").textContent = model.name;
  const [height, width] = model.image_size;
  byId("facts").textContent =
    `${model.classes.length} classes, ${model.network}, ${width} × ${height} pixels` +
    (model.rule ? `. Decisions: ${model.decide} (${model.rule})` : "");
  byId("maps-choice").hidden = !model.has_maps;
  byId("as-served").hidden = !(model.shares || model.costs || model.rule);
  byId("as-served").addEventListener("click", () => {
    shares = model.shares;
    useCosts(model.costs);
  });
  makeShares();
  makeCosts();
  useShares(model.shares, placeOf(model.shares));
}

const ready = start().catch((problem) => {
  byId("status").textContent = `The page could not start: ${problem.message}`;
});
