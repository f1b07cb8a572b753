// The contents of the page: unpacks numbers, and formats numbers and names.

const contents = JSON.parse(document.getElementById("contents").textContent);

// Unpacks the numbers of cosen/report/packing.py. A Uint16Array would depend on the byte order of
// the machine.
function unpack(packed) {
  const bytes = atob(packed.data);
  const values = new Float64Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) {
    const stored = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    const value = packed.low + ((packed.high - packed.low) * stored) / 65535;
    values[i] = packed.log ? 10 ** value : value;
  }
  return values;
}

// Square matrices, one per included epoch.
function unpackMatrices(packed) {
  const values = unpack(packed);
  const [epochs, size] = packed.shape;
  return {
    values,
    at: (epoch, row, column) => values[(Math.min(epoch, epochs - 1) * size + row) * size + column],
  };
}

// Numbers are formatted as in page.py: charts and tables agree.
const NO_VALUE = "–";

// Python rounds 81.25 to 81.2, JavaScript to 81.3. With one decimal, .25 is the only such tie.
function oneDecimal(value) {
  const size = Math.abs(value);
  const text = (size % 1 === 0.25 ? size - 0.05 : size).toFixed(1);
  return value < 0 ? `-${text}` : text;
}

function percent(rate) {
  return rate === null || Number.isNaN(rate) ? NO_VALUE : oneDecimal(100 * rate);
}

function points(change) {
  if (change === null || Number.isNaN(change)) return NO_VALUE;
  const text = oneDecimal(100 * change);
  if (Number(text) === 0) return "0.0";
  return change > 0 ? `+${text}` : text.replace("-", "−");
}

function amount(count) {
  if (count === null) return NO_VALUE;
  const digits = Math.abs(count - Math.round(count)) < 0.05 ? 0 : 1;
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return (digits ? Number(oneDecimal(count)) : count).toLocaleString("en", format);
}

// Three significant digits: costs range from a millionth to 1.
function significant(value) {
  if (value === null) return NO_VALUE;
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

// Cuts the middle: names of classes often differ at the end.
function shorten(text, most) {
  const characters = Array.from(text.replace(/\s+/g, " ").trim());
  if (characters.length <= most) return characters.join("");
  const end = Math.floor(most / 3);
  return `${characters.slice(0, most - 1 - end).join("")}…${characters.slice(-end).join("")}`;
}

// Escapes a text for Plotly, which reads tags and entities in labels. The two invisible characters
// isolate its text direction.
function labelText(text, most = 60) {
  const escaped = shorten(text, most)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;");
  return `\u2068${escaped}\u2069`;
}

const classCount = contents.classes.length;
const rarityRank = []; // 0 for the rarest class
contents.by_rarity.forEach((label, rank) => (rarityRank[label] = rank));
const methods = contents.methods;
const isCompared = methods.baseline !== null;

function className(label) {
  return contents.classes[label].name;
}

// Computed once: a matrix of 102 classes needs 20,000 of them each time it is drawn.
const classLabels = contents.classes.map((one) => labelText(one.name));

function difference(value, other) {
  return value === null || other === null ? null : value - other;
}
