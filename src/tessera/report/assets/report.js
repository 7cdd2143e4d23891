"use strict";
// Makes the page live: tables sort and filter, plots are drawn when they come into view, the theme changes.
// It writes text and attributes only, never markup: stored strings stay strings.

const STEP = 200; // rows that "Show more rows" adds
const ordinal = new Intl.Collator("en", { numeric: true });
const counted = new Intl.NumberFormat("en");

// ---- tables -------------------------------------------------------------------------------------------------

class LiveTable {
  constructor(figure) {
    this.body = figure.querySelector("tbody");
    this.rows = [...this.body.rows];
    this.shown = this.rows.filter((row) => !row.hidden).length;
    this.words = [];
    this.wanted = new Map(); // column -> the values let through
    this.output = figure.querySelector("output");
    this.more = figure.querySelector(".more");
    this.headings = [...figure.querySelectorAll("thead th")];
    this.headings.forEach((heading, column) =>
      heading.querySelector("button").addEventListener("click", () => this.sort(heading, column)));
    this.more.addEventListener("click", () => { this.shown += STEP; this.update(); });
    figure.querySelector("input")?.addEventListener("input", (event) => {
      this.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.update();
    });
    for (const chips of figure.querySelectorAll(".chips"))
      chips.addEventListener("click", (event) => this.press(chips, event.target.closest("button")));
    for (const select of figure.querySelectorAll("select"))
      select.addEventListener("change", () =>
        this.want(select.dataset.column, new Set(select.value ? [select.value] : [])));
  }

  press(chips, button) {
    if (!button) return;
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    const pressed = chips.querySelectorAll('[aria-pressed="true"]');
    this.want(chips.dataset.column, new Set([...pressed].map((b) => b.dataset.value)));
  }

  want(column, values) {
    if (values.size) this.wanted.set(Number(column), values);
    else this.wanted.delete(Number(column));
    this.update();
  }

  sort(heading, column) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of this.headings) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = heading.classList.contains("number");
    const key = (row) => {
      const cell = row.cells[column];
      if (numeric) return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
      return cell.textContent || null;
    };
    const compare = numeric ? (a, b) => a - b : ordinal.compare;
    const keyed = this.rows.map((row) => [key(row), row]);
    // Rows without a value come last in both directions.
    keyed.sort(([a], [b]) =>
      a === null || b === null ? (a === null) - (b === null) : down ? compare(b, a) : compare(a, b));
    this.rows = keyed.map(([, row]) => row);
    this.body.append(...this.rows);
    this.update();
  }

  passes(row) {
    for (const [column, values] of this.wanted)
      if (!values.has(row.cells[column].textContent)) return false;
    if (!this.words.length) return true;
    row.text ??= row.textContent.toLowerCase();
    return this.words.every((word) => row.text.includes(word));
  }

  update() {
    let matching = 0;
    for (const row of this.rows) {
      const passes = this.passes(row);
      row.hidden = !passes || matching >= this.shown;
      matching += passes;
    }
    this.more.hidden = matching <= this.shown;
    if (this.output)
      this.output.textContent = matching === this.rows.length
        ? `${counted.format(matching)} rows`
        : `${counted.format(matching)} of ${counted.format(this.rows.length)} rows`;
  }
}

document.querySelectorAll("figure.table").forEach((figure) => new LiveTable(figure));

// ---- theme --------------------------------------------------------------------------------------------------

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const toggle = document.querySelector("button.theme");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

function themeChanged() {
  toggle.setAttribute("aria-pressed", isDark());
  document.querySelectorAll(".canvas.drawn").forEach(draw);
}

toggle.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("tessera-theme", root.dataset.theme);
  } catch {
    // Not remembered where the browser gives no storage.
  }
  themeChanged();
});
systemDark.addEventListener("change", themeChanged);
toggle.setAttribute("aria-pressed", isDark());

// ---- plots --------------------------------------------------------------------------------------------------

const touch = matchMedia("(pointer: coarse)");
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

/** The present colour behind `var(--name)`: Plotly wants plain colours. */
function colour(text) {
  probe.style.color = text;
  return getComputedStyle(probe).color;
}

function withColours(value) {
  if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(withColours);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withColours(inner)]));
  return value;
}

function themed(layout) {
  const [ink, muted, line, card] = ["--ink", "--muted", "--line", "--card"].map((name) => colour(`var(${name})`));
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, tickfont: { color: muted } };
  const result = {
    ...layout,
    autosize: true,
    dragmode: touch.matches ? false : "zoom", // a finger scrolls the page
    modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    colorway: [1, 2, 3, 4, 5, 6].map((n) => colour(`var(--series-${n})`)),
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink, ...layout.font },
    margin: { l: 12, r: 12, t: 12, b: 12, ...layout.margin },
    hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink }, ...layout.hoverlabel },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", ...layout.legend },
  };
  const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d+$/.test(key))]);
  for (const name of axes) {
    const own = layout[name] ?? {};
    result[name] = { automargin: true, ...axis, ...own, tickfont: { ...axis.tickfont, ...own.tickfont } };
  }
  return result;
}

/** Plotly waits in the page as text, so that the page is there before its four megabytes are compiled. */
function plotly() {
  if (!window.Plotly) {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  }
  return window.Plotly;
}

function draw(canvas) {
  const figure = withColours(JSON.parse(canvas.parentElement.querySelector("script").textContent));
  plotly().react(canvas, figure.data, themed(figure.layout ?? {}), { displaylogo: false, responsive: true,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] });
  canvas.classList.add("drawn");
}

addEventListener("load", () => setTimeout(() => {
  const nearby = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting) {
        nearby.unobserve(entry.target);
        draw(entry.target);
      }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".canvas").forEach((canvas) => nearby.observe(canvas));
}));

// Paper is light and shows every plot, whatever the screen shows.
let themeOnScreen;
addEventListener("beforeprint", () => {
  themeOnScreen = root.dataset.theme;
  root.dataset.theme = "light";
  document.querySelectorAll(".canvas").forEach(draw);
});
addEventListener("afterprint", () => {
  if (themeOnScreen) root.dataset.theme = themeOnScreen;
  else delete root.dataset.theme;
  themeChanged();
});

// ---- where the reader is ------------------------------------------------------------------------------------

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const list = document.querySelector("nav");
const reading = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = links.get(entry.target.id);
    link.setAttribute("aria-current", "true");
    list.scrollTo({ left: link.offsetLeft - list.offsetLeft - 16 });
  }
}, { rootMargin: "-20% 0px -75% 0px" });
for (const name of links.keys()) reading.observe(document.getElementById(name));
