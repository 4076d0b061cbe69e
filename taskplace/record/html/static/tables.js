// A table that can be searched, sorted and paged; it keeps its state when its rows are replaced.

const PAGE = 15;
const FEW_ROWS = 8; // so many need no search

/**
 * columns: {name, text(row), show(row, sought)?, order(row)?, class?, optional?}; `text` is what is searched and sorted
 * by, unless there is an `order`. The first column heads its row. An optional column is left out if it is empty.
 * keep: the table stays a table on a phone, because it is narrow.
 */
class SearchTable {
  constructor({ label, columns, noun = "row", many = `${noun}s`, search = true, empty = "nothing here", page = PAGE, keep = false }) {
    Object.assign(this, { label, columns, noun, many, empty, page });
    this.rows = [];
    this.sought = "";
    this.first = 0;
    this.sorted = null;
    this.output = el("output", { "aria-live": "polite" });
    this.input = el("input", { type: "search", "aria-label": `Search ${label}`, placeholder: "search" });
    this.input.addEventListener("input", later(() => this.seek(this.input.value), 80));
    this.heads = columns.map((column, k) =>
      el("th", { scope: "col", class: column.class, "aria-sort": "none" },
        el("button", { type: "button", click: () => this.sort(k) }, column.name.replaceAll("-", "\u2011")))); // which does not break
    this.body = el("tbody");
    this.table = el("table", { class: keep ? "rows keep" : "rows", "aria-label": label }, el("thead", {}, el("tr", {}, this.heads)), this.body);
    this.back = el("button", { type: "button", click: () => this.turn(-1) }, "Previous");
    this.on = el("button", { type: "button", click: () => this.turn(1) }, "Next");
    this.where = el("span");
    this.pages = el("div", { class: "pages", role: "group", "aria-label": `Pages of ${label}` }, this.back, this.on, this.where);
    this.controls = el("div", { class: "controls" }, search ? this.input : null, this.output);
    this.element = el("div", {}, this.controls, el("div", { class: "scroll" }, this.table), this.pages);
  }

  show(rows) {
    this.rows = rows;
    const empty = (column) => rows.every((row) => ["", "–"].includes(column.text(row)));
    this.hidden = this.columns.map((column) => Boolean(column.optional) && empty(column));
    this.heads.forEach((head, k) => { head.hidden = this.hidden[k]; });
    this.render();
  }

  seek(text) {
    this.sought = text.trim().toLowerCase();
    this.first = 0;
    this.render();
  }

  sort(k) {
    const [column, down] = this.sorted || [];
    this.sorted = column !== k ? [k, false] : down ? null : [k, true];
    this.heads.forEach((head, i) => {
      const mine = this.sorted && this.sorted[0] === i;
      head.setAttribute("aria-sort", mine ? (this.sorted[1] ? "descending" : "ascending") : "none");
    });
    this.render();
  }

  turn(pages) {
    this.first = Math.max(0, this.first + pages * this.page);
    this.render();
  }

  found() {
    const words = this.sought.split(/\s+/).filter(Boolean);
    const has = (row) => {
      const text = this.columns.map((column) => column.text(row)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const rows = words.length ? this.rows.filter(has) : [...this.rows];
    if (this.sorted) {
      const [k, down] = this.sorted;
      const { order, text } = this.columns[k];
      const compare = order ? (a, b) => (order(a) ?? -1) - (order(b) ?? -1) : (a, b) => byName(text(a), text(b));
      rows.sort((a, b) => (down ? -1 : 1) * compare(a, b));
    }
    return rows;
  }

  render() {
    const rows = this.found();
    if (this.first >= rows.length) this.first = 0;
    const shown = rows.slice(this.first, this.first + this.page);
    const none = () => el("tr", {}, el("td", { colspan: this.columns.length }, this.sought ? "nothing is found" : this.empty));
    const lines = () => this.body.replaceChildren(...(shown.length ? shown.map((row) => this.line(row)) : [none()]));
    keepingOpen(this.body, () => keepingFocus(this.body, lines));
    const all = `${inNumber(this.rows.length)} ${this.rows.length === 1 ? this.noun : this.many}`;
    this.controls.hidden = this.rows.length <= FEW_ROWS && !this.sought;
    this.output.textContent = this.sought ? `${inNumber(rows.length)} of ${all}` : all;
    this.pages.hidden = rows.length <= this.page;
    this.back.disabled = this.first === 0;
    this.on.disabled = this.first + this.page >= rows.length;
    this.where.textContent = `${inNumber(this.first + 1)} to ${inNumber(this.first + shown.length)} of ${inNumber(rows.length)}`;
  }

  line(row) {
    const sought = this.sought.split(/\s+/)[0];
    return el("tr", {}, this.columns.map((column, k) => {
      const shown = column.show ? column.show(row, sought) : marked(column.text(row), sought);
      const attributes = { class: column.class, "data-label": column.name, scope: k ? null : "row", hidden: this.hidden[k] };
      return el(k ? "td" : "th", attributes, ...[shown].flat());
    }));
  }
}

/** Replace what is in an element; if the focus was in it, it goes to what has the same name. */
function keepingFocus(element, replace) {
  const nameOf = (one) => one.getAttribute("aria-label") || one.textContent;
  const named = (name) => [...element.querySelectorAll("button, summary, [role=button]")].filter((one) => nameOf(one) === name);
  const focused = document.activeElement;
  if (focused === element || !element.contains(focused)) return replace();
  const name = nameOf(focused);
  const k = named(name).indexOf(focused);
  replace();
  const again = named(name);
  if (again.length) again[Math.min(Math.max(0, k), again.length - 1)].focus({ preventScroll: true });
}

/** Replace the rows of a table; those whose details the reader has opened stay open. */
function keepingOpen(body, replace) {
  const nameOf = (row) => row.cells[0].textContent;
  const open = new Set([...body.rows].filter((row) => row.querySelector("details[open]")).map(nameOf));
  replace();
  for (const row of body.rows) if (open.has(nameOf(row))) row.querySelectorAll("details").forEach((one) => { one.open = true; });
}
