// The placement before and after: which two assignments are compared, and the matrix that shows them.

const MANY_TASKS = 150;

/** The places of all tasks at each step: Map of task -> [[instance, role], ...]. */
class History {
  constructor(steps) {
    this.steps = steps;
    this.known = new Map();
  }

  places(k) {
    if (this.known.has(k)) return this.known.get(k);
    let from = k;
    while (from > 0 && !this.known.has(from - 1)) from--;
    let places = from > 0 ? this.known.get(from - 1) : new Map();
    for (let step = from; step <= k; step++) {
      places = new Map(places);
      for (const [task, held] of Object.entries(this.steps[step].changes)) {
        if (held.length) places.set(Number(task), held);
        else places.delete(Number(task));
      }
    }
    this.known.set(k, places);
    return places;
  }
}

/** What changes between two placements: rows of the matrix, in the order of the tasks. */
function compared(report, was, now, sought, changesOnly) {
  const rows = [];
  report.tasks.forEach((task, number) => {
    const cells = new Map();
    const cell = (instance) => cells.get(instance) || cells.set(instance, { now: -1, was: -1 }).get(instance);
    for (const [instance, role] of was.get(number) || []) cell(instance).was = role;
    for (const [instance, role] of now.get(number) || []) cell(instance).now = role;
    if (!cells.size) return;
    const changed = [...cells.values()].some((one) => one.now !== one.was);
    if (changesOnly && !changed) return;
    const names = () => [...cells.keys()].map((instance) => report.instances[instance]);
    if (sought && !task.toLowerCase().includes(sought) && !names().some((name) => name.toLowerCase().includes(sought))) return;
    rows.push({ task, cells, changed });
  });
  return rows.sort((a, b) => byName(a.task, b.task));
}

class PlacementSection {
  constructor(body, one) {
    this.from = this.chooser("Before");
    this.to = this.chooser("After");
    this.back = el("button", { type: "button", "aria-label": "One step back", click: () => this.turn(-1) }, "‹");
    this.on = el("button", { type: "button", "aria-label": "One step on", click: () => this.turn(1) }, "›");
    this.search = el("input", { type: "search", "aria-label": `Search tasks and ${one}s`, placeholder: `task or ${one}`, input: later(() => this.draw(), 80) });
    this.changes = el("input", { type: "checkbox", change: () => { this.chosen = true; this.draw(); } });
    this.output = el("output", { "aria-live": "polite" });
    this.lead = el("p", { class: "lead" });
    this.cell = el("span", { class: "reading", "aria-hidden": "true" }, "Choose a cell, or move with the arrow keys.");
    this.matrix = new Matrix((row, column) => this.describe(row, column));
    this.instances = new SearchTable({
      label: `tasks per ${one}`, noun: one, keep: true, columns: [
        { name: one, class: "word", text: (row) => row.name },
        ...ROLES.map((role, k) => ({ name: role, class: "number", text: (row) => String(row.now[k]), order: (row) => row.now[k], show: (row) => changeOf(row, k) })),
        { name: "share", text: () => "", show: (row) => shareOf(row), order: (row) => row.now[0] },
      ],
    });
    const steps = el("div", { class: "controls" },
      el("label", {}, "before", this.from), el("label", {}, "after", this.to), el("span", { class: "pair" }, this.back, this.on));
    const filters = el("div", { class: "controls" }, this.search, el("label", {}, this.changes, "only changes"), this.output);
    const matrix = el("div", { class: "matrix-part" }, this.matrix.element, this.cell);
    const beside = el("div", { class: "beside" }, matrix, el("div", { class: "instances" }, this.instances.element));
    body.append(this.lead, steps, filters, keysOfMatrix(), beside);
  }

  chooser(name) {
    return el("select", { "aria-label": name, change: () => { this.follow = false; this.draw(); } });
  }

  show(report) {
    const before = this.report;
    this.report = report;
    this.history = new History(report.steps);
    const labels = report.steps.map((step) => step.label);
    const same = before && before.steps.map((step) => step.label).join() === labels.join();
    if (!same) {
      const held = [this.from.selectedOptions[0]?.textContent, this.to.selectedOptions[0]?.textContent];
      for (const select of [this.from, this.to]) {
        select.replaceChildren(...labels.map((label, k) => el("option", { value: k }, label)));
      }
      const last = report.steps.length - 1;
      const kept = this.follow === false ? held.map((label) => labels.lastIndexOf(label)) : [-1, -1];
      const [from, to] = opening(report);
      this.from.value = kept[0] < 0 ? from : kept[0];
      this.to.value = kept[1] < 0 ? to : kept[1];
      if (!before && last > 0 && report.tasks.length > MANY_TASKS) this.changes.checked = true;
    }
    this.draw();
  }

  /** Show a step and the one before it. */
  choose(label) {
    const k = this.report.steps.findIndex((step) => step.label === label);
    if (k < 0) return;
    this.follow = k === this.report.steps.length - 1;
    this.from.value = Math.max(0, k - 1);
    this.to.value = k;
    this.draw();
    $("placement").scrollIntoView();
  }

  turn(by) {
    const to = Math.min(this.report.steps.length - 1, Math.max(1, Number(this.to.value) + by));
    this.follow = to === this.report.steps.length - 1;
    this.to.value = to;
    this.from.value = to - 1;
    this.draw();
  }

  draw() {
    const { report } = this;
    const [from, to] = [Number(this.from.value), Number(this.to.value)];
    const [was, now] = [this.history.places(from), this.history.places(to)];
    const sought = this.search.value.trim().toLowerCase();
    const all = compared(report, was, now, "", false);
    const changed = all.filter((row) => row.changed).length;
    if (!changed && !this.chosen) this.changes.checked = false;
    const rows = sought || this.changes.checked ? compared(report, was, now, sought, this.changes.checked) : all;
    const filtered = rows.length < all.length;
    const used = new Set(rows.flatMap((row) => [...row.cells.keys()]));
    const columns = columnsOf(report, from, to);
    this.matrix.show(rows, filtered && columns.length > FEW && used.size ? columns.filter((column) => used.has(column.index)) : columns);
    this.back.disabled = to <= 1;
    this.on.disabled = to >= report.steps.length - 1;
    this.output.textContent = `${inNumber(rows.length)} of ${inNumber(all.length)} tasks; ${inNumber(changed)} change`;
    const step = report.steps[to];
    const parts = [step.at !== null && new Times(report).moment(step.at), step.text, step.to_go && `${inNumber(step.to_go)} moves to go`];
    this.lead.textContent = `${step.label}: ${parts.filter(Boolean).join("; ")}`;
    this.instances.show(countsOf(report, from, to, was, now));
  }

  describe(row, column) {
    const { now, was } = row.cells.get(column.index) || { now: -1, was: -1 };
    this.cell.textContent = `task ${row.task} on ${column.name}: ${inWords(now, was)}`;
  }
}

/** The two steps to begin with: the last one and the one before; of a plan, before and now. */
function opening(report) {
  const last = report.steps.length - 1;
  const named = report.steps.findIndex((step) => step.label === "step");
  const to = report.kind === "plan" && named >= 0 ? named : last;
  return [Math.max(0, to - 1), to];
}

function columnsOf(report, from, to) {
  const up = new Set(report.steps[to].up);
  const there = new Set([...report.steps[from].up, ...up]);
  return report.instances
    .map((name, index) => ({ name, index, up: up.has(index) }))
    .filter((column) => there.has(column.index))
    .sort((a, b) => byName(a.name, b.name));
}

function countsOf(report, from, to, was, now) {
  const counts = columnsOf(report, from, to).map((column) => ({ ...column, now: [0, 0, 0], was: [0, 0, 0] }));
  const at = new Map(counts.map((row) => [row.index, row]));
  for (const [key, places] of [["was", was], ["now", now]]) {
    for (const held of places.values()) for (const [instance, role] of held) if (at.has(instance)) at.get(instance)[key][role]++;
  }
  const most = Math.max(1, ...counts.map((row) => row.now[0] + row.now[1] + row.now[2]));
  return counts.map((row) => ({ ...row, most }));
}

function changeOf(row, role) {
  const by = row.now[role] - row.was[role];
  const shown = [inNumber(row.now[role])];
  if (by) shown.push(el("small", { class: by > 0 ? "tone-good" : "tone-busy" }, ` ${by > 0 ? "+" : "−"}${inNumber(Math.abs(by))}`));
  return el("span", {}, shown);
}

function shareOf(row) {
  const parts = ["active", "standby", "warmup"].map((name, k) =>
    el("span", { style: `width: ${(100 * row.now[k]) / row.most}%; background: var(--${name})` }));
  const label = `${row.now[0]} active, ${row.now[1]} standby, ${row.now[2]} warm-up`;
  return el("div", { class: "share", role: "img", "aria-label": label, title: label }, parts);
}

function keysOfMatrix() {
  const one = (style, text) => el("li", {}, el("i", { style }), text);
  return el("ul", { class: "keys", "aria-label": "Key of the matrix" },
    one("background: var(--active)", "A active"), one("background: var(--standby)", "S standby"), one("background: var(--warmup)", "W warm-up"),
    one("background: var(--muted); box-shadow: 0 0 0 1px var(--paper), 0 0 0 3px var(--ink); margin: 0 0.5rem 0 3px", "new role"),
    one("border: 2px dashed var(--muted)", "role that ends"));
}
