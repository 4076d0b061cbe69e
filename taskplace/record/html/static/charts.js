// Charts with uPlot: one look, one shared cursor, keys, and values that a screen reader reads.

const SYNC = "taskplace";
const STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
const charts = new Set();

/**
 * A chart over time.
 * - label: its accessible name; read(k): the values at sample k, as a sentence
 * - series: {label, stroke: a colour's name, value, ...uPlot's own}; y: {values, min, size}
 * - data: as uPlot takes it
 * - marks(): [{x, tone}] are vertical lines; whole(): the time that is shown, unless the reader has zoomed
 */
class Chart {
  constructor({ label, times, whole, series, y = {}, read, marks = () => [], height = 190, legend = true }) {
    Object.assign(this, { label, times, whole, series, y, read, marks, height, legend, plot: null, data: null, at: null });
    this.zoomed = false;
    this.hiddenNames = new Set(); // the names of lines that the reader has hidden
    this.host = el("div", {
      class: "chart", tabindex: "0", role: "slider", "aria-label": `${label}. Arrow keys read the values`,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", keydown: (event) => this.key(event),
    });
    this.reading = el("span", { class: "reading", "aria-hidden": "true" });
    this.element = el("div", {}, this.host, this.reading);
    new ResizeObserver(() => this.fit()).observe(this.host);
    charts.add(this);
  }

  show(data) {
    this.hold(data);
    if (this.plot && this.zoomed) {
      this.plot.setData(data, false); // the reader has chosen what to see
      this.plot.redraw();
    } else if (this.plot) this.plot.setData(data);
    else if (this.host.clientWidth) this.draw();
  }

  /** Show lines that may be others than before. */
  showLines(series, data) {
    const same = series.length === this.series.length && series.every((one, k) => one.label === this.series[k].label);
    this.series = series;
    if (same || !this.plot) return this.show(data);
    this.hold(data);
    this.again();
  }

  hold(data) {
    this.data = data;
    const last = Math.max(0, data[0].length - 1);
    this.host.setAttribute("aria-valuemax", last);
    if (this.at === null && data[0].length) this.host.setAttribute("aria-valuetext", this.read(last));
  }

  draw() {
    this.plot = new uPlot(this.options(), this.data, this.host);
    for (const head of this.host.querySelectorAll(".u-legend .u-series th")) {
      const press = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        head.click();
      };
      head.setAttribute("tabindex", "0");
      head.setAttribute("role", "button");
      head.addEventListener("keydown", press);
    }
  }

  fit() {
    const width = this.host.clientWidth;
    if (!width || !this.data) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
  }

  /** All of the time, the same in all charts; or where the reader has zoomed to. */
  range(least, most) {
    const first = this.data[0][0];
    const last = this.data[0][this.data[0].length - 1];
    const all = first === last ? !(least > first || most < last) : least === first && most === last;
    this.zoomed = !all; // else uPlot asks for all data, at first and after a double-click
    return this.zoomed ? [least, most] : this.whole();
  }

  /** The time that is shown, in words. */
  span(plot) {
    const [from, to] = [plot.scales.x.min, plot.scales.x.max].map((x) => this.times.moment(Math.max(0, x - this.times.began)));
    this.host.setAttribute("aria-description", `from ${from} to ${to}`);
  }

  /** Draw again, in other colours or with other lines; what the reader has chosen stays. */
  again() {
    if (!this.plot) return;
    const { zoomed, plot } = this;
    const { min, max } = plot.scales.x;
    for (const one of plot.series.slice(1)) this.hiddenNames[one.show ? "delete" : "add"](one.label);
    keepingFocus(this.host, () => {
      plot.destroy();
      this.draw();
    });
    if (zoomed) this.plot.setScale("x", { min, max });
  }

  options() {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const series = this.series.map((one) => ({
      width: 1.6, show: !this.hiddenNames.has(one.label), ...one, points: one.points ? { ...one.points, fill: colour(one.stroke) } : { show: false }, stroke: colour(one.stroke), fill: one.fill && colour(one.fill),
      value: (_, value) => (value === null || value === undefined ? "–" : (one.value || inNumber)(value)),
    }));
    const marks = (plot) => this.drawMarks(plot);
    return {
      width: this.host.clientWidth, height: this.height, series: [{ value: (_, x) => (x === null ? "–" : this.times.moment(x - this.times.began)), label: "time" }, ...series],
      legend: { show: this.legend, markers: { width: 0, fill: (u, k) => u.series[k].stroke(u, k) } },
      scales: { x: { time: false, range: (u, least, most) => this.range(least, most) }, y: { range: this.y.range || fromZero } },
      axes: [
        { ...axis, incrs: STEPS, space: 72, size: 34, values: (_, values, __, ___, step) => this.times.ticks(values, step) },
        { ...axis, size: 84, values: (_, values) => values.map(this.y.values || compact), splits: this.y.splits },
      ],
      cursor: { sync: { key: SYNC, scales: ["x", null] }, y: false, drag: { x: true, y: false } },
      hooks: { drawClear: [marks], setCursor: [(plot) => this.moved(plot)], setScale: [(plot, key) => key === "x" && this.span(plot)] },
    };
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const { x, tone } of this.marks()) {
      const left = plot.valToPos(x, "x", true);
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(tone);
      ctx.lineWidth = tone === "bad" ? 2 : 1;
      ctx.setLineDash(tone === "bad" ? [] : [3, 3]);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  moved(plot) {
    const k = plot.cursor.idx;
    this.reading.textContent = k === null || k === undefined ? "" : this.read(k);
  }

  /** Arrow keys, Home and End move the cursor; the value is read. */
  key(event) {
    const last = this.data[0].length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || event.target !== this.host || last < 0 || !this.plot) return;
    event.preventDefault();
    const start = this.at === null ? (moves[event.key] < 0 ? last + 1 : -1) : this.at;
    this.at = Math.min(last, Math.max(0, start + moves[event.key]));
    this.plot.setCursor({ left: this.plot.valToPos(this.data[0][this.at], "x"), top: 10 });
    this.host.setAttribute("aria-valuenow", this.at);
    this.host.setAttribute("aria-valuetext", this.read(this.at));
    this.reading.textContent = this.read(this.at);
  }
}

const fromZero = (_, __, most) => [0, most > 0 ? 1.12 * most : 1];

/** All of the time, with a little room on both sides. */
function spread(least, most) {
  const room = Math.max(0.02 * (most - least), most === least ? 1 : 0);
  return [least - room, most + room];
}

const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const compact = (value) => short.format(value);

addEventListener("themechange", () => charts.forEach((chart) => chart.again()));
