// The charts of a report: batch times, lag per copy, balance, and the timeline.

const LINES = ["line-1", "line-2", "line-3", "line-4", "line-5", "line-6"];
const MOST_LINES = 6;

const MOST_MARKS = 30;

/** Vertical lines at losses and rebalances, on every chart; many rebalances would hide the lines below. */
function marksOf(report, times) {
  const many = report.timeline.filter((one) => one.kind === "rebalance").length > MOST_MARKS;
  const tones = { loss: "bad", failure: "bad", leaving: "busy", ...(many ? {} : { rebalance: "muted" }) };
  return report.timeline.filter((one) => one.kind in tones).map((one) => ({ x: times.x(one.at), tone: tones[one.kind] }));
}

class Charts {
  constructor() {
    this.report = null;
    this.marks = () => marksOf(this.report, this.times);
    this.whole = () => wholeOf(this.report, this.times);
  }

  begin(report) {
    this.report = report;
    this.times = this.times || new Times(report);
    Object.assign(this.times, new Times(report));
  }

  /** Each batch is a block: as wide as the time that it took, and as high as its seconds. */
  batches() {
    const read = (k) => {
      const { samples } = this.report;
      const n = Math.min(samples.at.length - 1, Math.floor(k / 3));
      if (n < 0) return "no batch";
      return `batch ${samples.number[n]}: ${inSeconds(samples.seconds[n])}, ${inNumber(samples.rows[n])} rows, at ${this.times.moment(samples.at[n])}`;
    };
    const chart = new Chart({
      label: "Batch times", times: this.times, whole: this.whole, marks: this.marks, read, legend: false,
      y: { values: inSeconds }, series: [{ label: "seconds", stroke: "active", fill: "area", value: inSeconds }],
    });
    return {
      element: chart.element,
      show: () => {
        const { samples } = this.report;
        const x = [];
        const y = [];
        samples.at.forEach((at, n) => {
          const end = this.times.x(at);
          const took = samples.seconds[n];
          const next = n + 1 < samples.at.length ? this.times.x(samples.at[n + 1]) - samples.seconds[n + 1] : Infinity;
          x.push(end - took, end, Math.max(end, Math.min(end + 1e-3, next)));
          y.push(took, took, null);
        });
        chart.show([x, y]);
      },
    };
  }

  /** The lag of all copies together, and of those that lacked most: a line stays while its copy is one of them. */
  lag() {
    const peak = (copy) => copy.values.reduce((most, value) => Math.max(most, value), 0);
    const lines = () => this.report.copies.filter((copy) => copy.values.length)
      .sort((a, b) => peak(b) - peak(a) || byName(a.task, b.task) || byName(a.instance, b.instance)).slice(0, MOST_LINES);
    const read = (k) => {
      const { samples, unit } = this.report;
      const behind = lines().filter((copy) => copy.values[k]).map((copy) => `${copy.task} on ${copy.instance} ${inNumber(copy.values[k])}`);
      return `${unit} ${samples.number[k]}: ${inNumber(samples.lag[k])} records in all${behind.length ? `; ${behind.join(", ")}` : ""}`;
    };
    const all = { label: "all copies", stroke: "strong-line", fill: "area", paths: stepped() };
    const chart = new Chart({ label: "Lag in records", times: this.times, whole: this.whole, marks: this.marks, read, series: [all] });
    const show = () => {
      const copies = lines();
      const series = copies.map((copy, k) => ({ label: `${copy.task} on ${copy.instance}`, stroke: LINES[k % LINES.length], paths: stepped() }));
      const { samples } = this.report;
      chart.showLines([all, ...series], [samples.at.map((at) => this.times.x(at)), samples.lag, ...copies.map((copy) => copy.values)]);
    };
    return { element: chart.element, show };
  }

  balance() {
    const read = (k) => `${this.report.unit} ${this.report.samples.number[k]}: largest load ${inFigure(this.report.samples.imbalance[k])} times the mean`;
    const chart = new Chart({
      label: "Imbalance: largest load divided by the mean", times: this.times, whole: this.whole, marks: this.marks, read, height: 150, legend: false,
      y: { values: (value) => value.toFixed(2), range: (_, __, most) => [0.9, Math.max(1.2, 1.05 * (most || 1))] },
      series: [{ label: "largest / mean", stroke: "standby", width: 2, paths: stepped(), value: inFigure, spanGaps: true }],
    });
    return {
      element: chart.element,
      show: () => chart.show([this.report.samples.at.map((at) => this.times.x(at)), this.report.samples.imbalance]),
    };
  }

  timeline() {
    const kinds = [["rebalances", ["rebalance"], "accent"], ["events", ["event", "leaving"], "busy"], ["losses", ["loss", "failure"], "bad"]];
    const present = () => kinds.filter(([, these]) => this.report.timeline.some((one) => these.includes(one.kind))); // no empty rows
    const read = (k) => (this.report.timeline[k] ? `${this.times.moment(this.report.timeline[k].at)}: ${this.report.timeline[k].text}` : "");
    const chart = new Chart({
      label: "Timeline", times: this.times, whole: this.whole, read, height: 120, legend: false,
      y: {
        range: () => [-0.6, present().length - 0.4], values: (value) => present()[value]?.[0] ?? "", splits: () => present().map((_, y) => y),
      },
      series: kinds.map(([label, , stroke]) => ({ label, stroke, paths: () => null, points: { show: true, size: 11, width: 1 } })),
    });
    return {
      element: chart.element,
      show: () => {
        const { timeline } = this.report;
        const shown = present();
        const rows = kinds.map((kind) => timeline.map((one) => (kind[1].includes(one.kind) ? shown.indexOf(kind) : null)));
        chart.show([timeline.map((one) => this.times.x(one.at)), ...rows]);
      },
    };
  }
}

/** The time of all samples and timeline, so that all charts are as wide. */
function wholeOf({ samples, timeline }, times) {
  const starts = samples.seconds.length ? [samples.at[0] - samples.seconds[0]] : samples.at.slice(0, 1);
  const ats = [...starts, ...samples.at.slice(-1), ...timeline.map((one) => one.at)].map((at) => times.x(at));
  return spread(Math.min(...ats), Math.max(...ats));
}

const stepped = () => uPlot.paths.stepped({ align: 1 });
