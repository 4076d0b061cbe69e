// The sections of the page: each shows its part of the report, or is hidden if there is nothing to show.

/**
 * A section: `has(report)` says whether there is something, `make(body)` makes what shows it.
 * It is shown again only if one of the `parts` of the report has changed.
 */
class Section {
  constructor(id, { lead, parts, has, make }) {
    Object.assign(this, { id, parts, has, make, made: null, shown: [] });
    this.section = $(id);
    this.body = this.section.querySelector(".body");
    if (lead) this.body.append(el("p", { class: "lead" }, lead));
  }

  show(report) {
    this.section.hidden = !this.has(report);
    const values = ["began", ...this.parts].map((part) => report[part]);
    if (this.section.hidden || values.every((value, k) => value === this.shown[k])) return;
    this.made = this.made || this.make(this.body);
    this.made.show(report);
    this.shown = values;
  }
}

const word = (name, text, more = {}) => ({ name, class: "word", text, ...more });
const number = (name, value, more = {}) => ({ name, class: "number", text: (row) => inNumber(value(row)), order: value, ...more });
const timed = (name, value, more = {}) => ({ name, class: "number", text: (row) => inSeconds(value(row)), order: value, ...more });

/** A table as a part of a section. */
function tablePart(options, rowsOf) {
  return (body) => {
    const table = new SearchTable(options);
    body.append(table.element);
    return { table, show: (report) => table.show(rowsOf(report)) };
  };
}

/** A chart with a table of its numbers behind it. */
function chartPart(chart, { open, ...options }, rowsOf) {
  return (body) => {
    const part = chart();
    const table = new SearchTable(options);
    body.append(part.element, el("details", { class: "data", open }, el("summary", {}, `Table: ${options.label}`), table.element));
    return { show: (report) => { part.show(); table.show(rowsOf(report)); } };
  };
}

function sectionsOf(charts, { kind }) {
  const one = kind === "run" || kind === "checkpoint" ? "executor" : "instance";
  const moment = (value) => ({ name: "when", class: "word", text: (row) => charts.times.moment(value(row)), order: value });
  const placement = new Section("placement", {
    parts: ["steps", "tasks", "instances"],
    lead: `Tasks by ${one}, before and after: a ring marks a role that is new, a dashed box one that ends.`,
    has: (report) => report.steps.length > 0 && report.tasks.length > 0, make: (body) => new PlacementSection(body, one),
  });
  const stepLink = (row) => row.step
    ? el("button", { type: "button", class: "link", "aria-label": `Show the placement of ${row.step}`, click: () => placement.made && placement.made.choose(row.step) }, row.step)
    : "";
  return [
    new Section("now", { parts: ["now"], has: (report) => report.now.length > 0, make: tablePart({ label: `${one}s`, noun: one, keep: true, columns: instanceColumns(one) },
      (report) => [...report.now].sort((a, b) => byName(a.id, b.id))) }),
    new Section("input", {
      parts: ["inputs"],
      lead: "The topics that tasks read themselves: offsets that come next, the ends as the brokers said last, and the age of the first unread record.",
      has: (report) => report.inputs.length > 0,
      make: tablePart({ label: "input", noun: "partition", columns: [
        word("topic", (row) => row.topic), number("partition", (row) => row.partition), number("position", (row) => row.position),
        number("end", (row) => row.end), number("lag", (row) => row.lag), timed("behind", (row) => row.seconds),
      ] }, (report) => report.inputs),
    }),
    new Section("timeline", {
      parts: ["timeline", "samples"],
      lead: "Rebalances, events and losses. Choose a placement to see what it changed.",
      has: (report) => report.timeline.length > 0,
      make: chartPart(() => charts.timeline(), { label: "what happened", noun: "event", open: true, columns: [
        moment((row) => row.at), word("kind", (row) => row.kind, { show: (row) => el("span", { class: row.kind === "loss" || row.kind === "failure" ? "tone-bad" : "" }, row.kind) }),
        { name: "what", text: (row) => row.text }, word("placement", (row) => row.step, { show: stepLink, optional: true }),
      ] }, (report) => [...report.timeline].reverse()),
    }),
    new Section("batches", {
      parts: ["samples", "timeline"],
      lead: "A block is one batch: as wide as it lasted, as high as its seconds. Red lines are losses, dashed ones rebalances. Drag to zoom, double-click to zoom out.",
      has: (report) => report.samples.seconds.length > 0,
      make: chartPart(() => charts.batches(), { label: "batches", noun: "batch", many: "batches", columns: batchColumns(moment) }, batchRows),
    }),
    new Section("lag", {
      parts: ["samples", "copies", "timeline"],
      lead: "The records that standbys and warm-ups lack, all together and for the copies that lacked most.",
      has: (report) => report.samples.lag.length > 0 || report.copies.length > 0, make: (body) => lagPart(body, charts, one),
    }),
    new Section("recovery", {
      parts: ["recoveries"],
      has: (report) => report.recoveries.length > 0,
      make: tablePart({ label: "losses", noun: "loss", many: "losses", search: false, columns: recoveryColumns(moment, one) }, (report) => report.recoveries.map((row) => ({ ...row, report }))),
    }),
    new Section("balance", {
      parts: ["samples", "steps", "timeline"],
      lead: `The largest load of an ${one} divided by the mean: 1 is even.`,
      has: (report) => report.samples.imbalance.some((value) => value !== null),
      make: chartPart(() => charts.balance(), { label: "imbalance by assignment", noun: "assignment", columns: [
        word("assignment", (row) => row.label, { show: (row) => stepLink({ step: row.label }) }), moment((row) => row.at),
        { name: "imbalance", class: "number", text: (row) => inFigure(row.imbalance), order: (row) => row.imbalance },
        number("moves to go", (row) => row.to_go), { name: "why", text: (row) => row.text },
      ] }, (report) => [...report.steps].reverse()),
    }),
    placement,
    new Section("moves", { parts: ["moves"], has: (report) => report.moves.length > 0, make: tablePart({ label: "moves", noun: "move", columns: [
      word("placement", (row) => row.step, { show: stepLink }), word("task", (row) => row.task), word("role", (row) => row.role, { show: (row) => roleBadge(row.role) }),
      word("from", (row) => row.origin), word("to", (row) => row.to), { name: "why", text: (row) => row.why },
    ] }, (report) => [...report.moves].reverse()) }),
    new Section("reasons", {
      parts: ["reasons"],
      lead: `Why each task is where it is; open a row for its copies, its target and the ${one}s that were refused.`,
      has: (report) => report.reasons.length > 0, make: tablePart({ label: "reasons", noun: "task", columns: [
        word("task", (row) => row.task), word("active on", (row) => row.where),
        { name: "why", text: (row) => `${row.why} ${row.text}`, order: undefined, show: (row, sought) => {
          const text = el("pre", {}, ...marked(row.text, sought));
          return el("details", {}, el("summary", {}, ...marked(row.why, sought)), text);
        } },
      ] }, (report) => report.reasons),
    }),
    new Section("facts", { parts: ["facts"], has: (report) => report.facts.length > 0, make: tablePart({ label: "counts", noun: "count", search: false, keep: true, page: 60, columns: [
      { name: "name", text: (row) => row[0] }, { name: "value", class: "number", text: (row) => row[1] },
    ] }, (report) => report.facts) }),
  ];
}

function instanceColumns(one) {
  return [
    word(one, (row) => row.id),
    { name: "state", class: "word", text: (row) => row.state || "up", show: (row) => el("span", { class: row.state === "lost" ? "tone-bad" : row.state ? "tone-busy" : "" }, row.state || "up") },
    number("active", (row) => row.active), number("standby", (row) => row.standby), number("warm-up", (row) => row.warmup),
    number("lag", (row) => row.lag, { optional: true }), { name: "more", text: (row) => row.note, optional: true },
  ];
}

function batchColumns(moment) {
  return [
    number("batch", (row) => row.number), moment((row) => row.at), number("rows", (row) => row.rows), timed("time", (row) => row.seconds),
    number("rows/s", (row) => (row.seconds > 0 ? Math.round(row.rows / row.seconds) : null)), number("lag", (row) => row.lag),
    { name: "where the time went", text: (row) => row.phases },
  ];
}

function batchRows({ samples }) {
  return samples.number.map((number, k) => ({
    number, at: samples.at[k], rows: samples.rows[k], seconds: samples.seconds[k], lag: samples.lag[k],
    phases: Object.entries(samples.phases).filter(([, values]) => values[k] >= 0.0005).map(([name, values]) => `${name} ${inSeconds(values[k])}`).join(", "),
  })).reverse();
}

function lagPart(body, charts, one) {
  const chart = charts.lag();
  const table = new SearchTable({ label: "lags of copies", noun: "copy", many: "copies", empty: "no copy lacks records", columns: [
    word("task", (row) => row.task), word(one, (row) => row.instance), word("role", (row) => row.role, { show: (row) => roleBadge(row.role) }),
    number("lag now", (row) => row.last), number("largest", (row) => (row.values.length || row.peak > row.last ? row.peak : null), { optional: true }), { name: "more", text: (row) => row.note, optional: true },
  ] });
  const details = el("details", { class: "data" }, el("summary", {}, "Table: lags of copies"), table.element);
  body.append(chart.element, details);
  return { show: (report) => {
    const over = report.samples.lag.length > 0;
    chart.element.hidden = !over;
    if (over) chart.show();
    else details.open = true;
    table.show([...report.copies].sort((a, b) => b.last - a.last || b.peak - a.peak));
  } };
}

function recoveryColumns(moment, one) {
  const unit = (row) => (row.report.unit === "batch" ? "batch" : "round");
  return [
    word(one, (row) => row.instance, { show: (row) => el("strong", { class: row.leaving ? "tone-busy" : "tone-bad" }, row.instance) }),
    moment((row) => row.at), word("during", (row) => `${unit(row)} ${row.batch}`), number("active tasks", (row) => row.tasks), number("promoted", (row) => row.promoted),
    timed("new places after", (row) => row.planned), timed("batch committed after", (row) => row.committed, { optional: true }), timed("all standbys after", (row) => row.whole),
    { name: "stages", text: () => "", order: (row) => row.whole, show: stagesOf },
    number("replayed in its batch", (row) => row.replayed, { optional: true }), number("restored from scratch", (row) => row.scratch, { optional: true }),
  ];
}

/** The stages of a recovery as a bar: until new places, until the commit, until all standbys. */
function stagesOf(row) {
  const longest = Math.max(1e-9, ...row.report.recoveries.map((one) => one.whole ?? one.committed ?? one.planned ?? 0));
  let from = 0;
  const parts = [[row.planned, "bad"], [row.committed, "busy"], [row.whole, "standby"]].filter(([end]) => end !== null).map(([end, tone]) => {
    const part = el("span", { style: `width: ${(100 * Math.max(0, end - from)) / longest}%; background: var(--${tone})` });
    from = Math.max(from, end);
    return part;
  });
  const label = `new places after ${inSeconds(row.planned)}, committed after ${inSeconds(row.committed)}, all standbys after ${inSeconds(row.whole)}`;
  return el("div", { class: "stages", role: "img", "aria-label": label, title: label }, parts);
}
