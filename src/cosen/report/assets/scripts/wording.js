// How numbers and names are written. The same forms as in page.py, so that a number that is drawn
// and the same number in a table of the template agree.

const NO_VALUE = "–";

// Python rounds 81.25 to 81.2, JavaScript to 81.3: at one decimal, .25 is the only such tie.
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

// Three digits that matter, whatever the size: costs go from 1 down to a millionth.
function significant(value) {
  if (value === null) return NO_VALUE;
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

// Leaves out the middle: names of classes often differ at the end only.
function shorten(text, most) {
  const characters = Array.from(text.replace(/\s+/g, " ").trim());
  if (characters.length <= most) return characters.join("");
  const end = Math.floor(most / 3);
  return `${characters.slice(0, most - 1 - end).join("")}…${characters.slice(-end).join("")}`;
}

// Plotly reads tags and entities in every label: what comes from data has to be escaped for it. The
// two invisible characters keep a name's direction to itself.
function labelText(text, most = 60) {
  const escaped = shorten(text, most)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;");
  return `\u2068${escaped}\u2069`;
}

const classCount = contents.classes.length;
const methods = contents.methods;
const isCompared = methods.baseline !== null;

function className(label) {
  return contents.classes[label].name;
}

// Made once: a matrix of 102 classes asks for 20,000 of them each time it is drawn.
const classLabels = contents.classes.map((one) => labelText(one.name));

function difference(value, other) {
  return value === null || other === null ? null : value - other;
}
