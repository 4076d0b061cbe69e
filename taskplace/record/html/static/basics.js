// Elements, numbers and times in words, colours.

const $ = (id) => document.getElementById(id);

/** Make an element: attributes by name, functions as listeners, children as nodes or text. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else if (name === "class") made.className = value;
    else if (name === "style") made.style.cssText = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const numbers = new Intl.NumberFormat("en-US");
const inNumber = (value) => (value === null || value === undefined ? "–" : numbers.format(value));
const inFigure = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

/** "12 ms", "4.1 s", "2 min 31 s", "2 h 5 min", "3 d 2 h". */
function inSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const many = Math.floor(rest / size);
    rest -= many * size;
    if (many || parts.length) parts.push(many ? `${many} ${name}` : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ");
}

/** Times of a report in words: of the clock for a run, since the start in a simulation. */
class Times {
  constructor(report) {
    this.virtual = report.virtual || report.began === null;
    this.began = this.virtual ? 0 : report.began;
    this.clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
    this.day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
    this.whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  }

  x(at) {
    return this.began + at;
  }

  /** A moment, as text. */
  moment(at) {
    if (at === null || at === undefined) return "–";
    return this.virtual ? `after ${inSeconds(at)}` : this.clock.format(new Date(1000 * this.x(at)));
  }

  /** The labels of an axis whose ticks are `step` seconds apart. */
  ticks(values, step) {
    if (this.virtual) return values.map((value) => (value ? inSeconds(value) : "0"));
    const format = step >= 3600 ? this.day : this.clock;
    return values.map((value) => format.format(new Date(1000 * value)));
  }
}

/** Compare names that have numbers: 0_2 before 0_10. */
const byName = new Intl.Collator("en", { numeric: true }).compare;

/** A colour of the theme, as the canvas takes it. */
function colour(name) {
  const probe = $("colour-probe") || document.body.appendChild(el("span", { id: "colour-probe", hidden: true }));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** A function that runs once, a little after the last call. */
function later(run, milliseconds = 120) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  };
}

/** The text with the found part marked. */
function marked(text, sought) {
  const at = sought ? text.toLowerCase().indexOf(sought) : -1;
  if (at < 0) return [text];
  const end = at + sought.length;
  return [text.slice(0, at), el("mark", {}, text.slice(at, end)), text.slice(end)];
}

function roleBadge(role) {
  return el("span", { class: `role role-${role}` }, role);
}
