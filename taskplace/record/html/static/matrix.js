// The matrix of tasks and instances. Only the rows in view are in the document, so thousands of tasks stay light.

const ROW = 26;
const ROLES = ["active", "standby", "warm-up"];
const LETTERS = ["A", "S", "W"];
const MORE = 6; // rows beside those in view
const FEW = 10; // as many instances get wide columns, with words

/**
 * rows: [{task, cells: Map of instance -> {now, was}}]; columns: [{name, up}]; roles are numbers, -1 is none.
 * Arrow keys, Home, End, Page Up and Page Down move through the cells; `describe` gets what is there.
 */
class Matrix {
  constructor(describe) {
    this.describe = describe;
    this.rows = [];
    this.columns = [];
    this.at = [0, 0];
    this.space = el("div", { class: "space", role: "rowgroup" });
    this.head = el("div", { class: "line head", role: "row", "aria-rowindex": "1" });
    const top = el("div", { role: "rowgroup", style: "position: sticky; top: 0; z-index: 3" }, this.head);
    this.element = el("div", {
      class: "matrix", role: "grid", tabindex: "0", "aria-label": "Tasks by instance. Arrow keys move through the cells",
      "aria-readonly": "true", keydown: (event) => this.key(event), click: (event) => this.click(event),
      scroll: () => this.render(), focus: () => this.focus(true), blur: () => this.focus(false),
    }, top, this.space);
    new ResizeObserver(() => this.render()).observe(this.element);
  }

  show(rows, columns) {
    Object.assign(this, { rows, columns });
    const narrow = columns.length > FEW;
    this.element.classList.toggle("narrow", narrow);
    this.template = `minmax(5.2rem, max-content) repeat(${columns.length}, ${narrow ? "2rem" : "minmax(4.6rem, 8rem)"})`;
    const names = columns.map((column, k) =>
      el("div", { role: "columnheader", class: column.up ? "" : "down", "aria-colindex": k + 2 }, el("span", { title: column.name }, column.name)));
    this.head.style.gridTemplateColumns = this.template;
    this.head.replaceChildren(el("div", { role: "columnheader", "aria-colindex": "1" }, "task"), ...names);
    this.element.setAttribute("aria-rowcount", rows.length + 1);
    this.element.setAttribute("aria-colcount", columns.length + 1);
    this.space.style.height = `${Math.max(1, rows.length) * ROW}px`;
    this.at = [Math.min(this.at[0], Math.max(0, rows.length - 1)), Math.min(this.at[1], Math.max(0, columns.length - 1))];
    this.drawn = null;
    this.render();
  }

  render() {
    if (!this.rows.length) {
      this.space.replaceChildren(el("div", { class: "none", role: "row" }, el("span", { role: "gridcell" }, "no task is shown")));
      return;
    }
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MORE);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW) + MORE);
    const key = `${first} ${last} ${this.at} ${this.focused}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const lines = [];
    for (let k = first; k < last; k++) lines.push(this.line(k));
    this.space.replaceChildren(...lines);
  }

  line(k) {
    const row = this.rows[k];
    const cells = this.columns.map((column, c) => this.cell(row, column, k, c));
    const head = el("div", { class: "task", role: "rowheader", "aria-colindex": "1" }, row.task);
    const style = `grid-template-columns: ${this.template}; transform: translateY(${k * ROW}px)`;
    return el("div", { class: "line", role: "row", "aria-rowindex": k + 2, style }, head, cells);
  }

  cell(row, column, k, c) {
    const here = this.focused && this.at[0] === k && this.at[1] === c;
    const { now, was } = row.cells.get(column.index) || { now: -1, was: -1 };
    const attributes = {
      class: here ? "cell here" : "cell", role: "gridcell", id: `cell-${k}-${c}`, "aria-colindex": c + 2,
      "aria-label": now < 0 && was < 0 ? "none" : inWords(now, was), "data-row": k, "data-column": c,
    };
    if (now < 0 && was < 0) return el("div", attributes);
    const wide = this.columns.length <= FEW;
    const shown = now < 0 ? was : now;
    const box = now < 0 ? `box was${was}` : now === was ? `box r${now}` : `box r${now} new`;
    return el("div", { ...attributes, title: inWords(now, was) }, el("span", { class: box }, wide ? ROLES[shown] : LETTERS[shown]));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 2);
    const [row, column] = this.at;
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - page, column], PageDown: [row + page, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0], End: event.ctrlKey ? [Infinity, Infinity] : [row, Infinity],
    }[event.key];
    if (!to || !this.rows.length) return;
    event.preventDefault();
    this.go(to[0], to[1]);
  }

  click(event) {
    const cell = event.target.closest("[data-row]");
    if (cell) this.go(Number(cell.dataset.row), Number(cell.dataset.column));
  }

  go(row, column) {
    const within = (value, most) => Math.min(most, Math.max(0, value));
    this.at = [within(row, this.rows.length - 1), within(column, this.columns.length - 1)];
    this.focused = true;
    const top = this.at[0] * ROW;
    const room = this.element.clientHeight - this.head.offsetHeight - ROW;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + room) this.element.scrollTop = top - room;
    this.render();
    this.point();
  }

  focus(focused) {
    this.focused = focused;
    this.render();
    if (focused) this.point();
  }

  point() {
    const [row, column] = this.at;
    const cell = $(`cell-${row}-${column}`);
    if (!cell) return;
    this.element.setAttribute("aria-activedescendant", cell.id);
    if (this.rows[row]) this.describe(this.rows[row], this.columns[column]);
    const name = cell.parentElement.firstElementChild.offsetWidth;
    const left = cell.offsetLeft - name;
    if (left < this.element.scrollLeft) this.element.scrollLeft = left;
    const right = cell.offsetLeft + cell.offsetWidth - this.element.clientWidth;
    if (right > this.element.scrollLeft) this.element.scrollLeft = right;
  }
}

/** What a cell says: "warm-up, new", "active, was standby", "no longer active". */
function inWords(now, was) {
  if (now < 0) return was < 0 ? "none" : `no longer ${ROLES[was]}`;
  if (now === was) return ROLES[now];
  return was < 0 ? `${ROLES[now]}, new` : `${ROLES[now]}, was ${ROLES[was]}`;
}
