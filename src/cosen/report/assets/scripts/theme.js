// Light and dark colours. The page follows the system until the button is pressed; it stores nothing.

const root = document.documentElement;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

const SCALES = {
  light: {
    share: ["#f4f7fb", "#c9dcf0", "#86b4dd", "#3a7fc1", "#12498c", "#082a57"],
    change: ["#8a3a00", "#d9741a", "#f6c08a", "#f5f5f4", "#a9cbea", "#3a7fc1", "#0d3f7a"],
  },
  dark: {
    share: ["#1a212b", "#1d3c60", "#27619f", "#4a93d6", "#98c6f0", "#eaf4fe"],
    change: ["#ffc489", "#d87a26", "#6b4321", "#232a34", "#1f4a76", "#4a93d6", "#b5dafb"],
  },
};

const isPrinting = () => root.classList.contains("printing");

function isDark() {
  if (isPrinting()) return false;
  return root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches;
}

const palettes = new Map();

// The colours of the page, for charts.
function palette() {
  if (!palettes.has(isDark())) palettes.set(isDark(), resolvedPalette());
  return palettes.get(isDark());
}

// An element resolves them: the properties hold both colours.
function resolvedPalette() {
  const probe = element("span", { hidden: "" });
  root.append(probe);
  const resolve = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["ink", "quiet", "line", "surface", "accent", "plain", "better", "worse", "bar"];
  const colours = Object.fromEntries(names.map((name) => [name, resolve(name)]));
  probe.remove();
  const scales = SCALES[isDark() ? "dark" : "light"];
  const spaced = (all) => all.map((colour, i) => [i / (all.length - 1), colour]);
  return {
    ...colours,
    font: getComputedStyle(document.body).fontFamily,
    shareScale: spaced(scales.share),
    changeScale: spaced(scales.change),
  };
}

function startTheme() {
  const button = byId("theme");
  const update = () => {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
    for (const listener of themeListeners) listener();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    update();
  });
  systemIsDark.addEventListener("change", update);
  update();
}
