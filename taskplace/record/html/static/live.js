// The live page: asks its server for news, and says when the driver is gone.

const SILENT = 10000; // milliseconds without news or a heartbeat, after which the driver counts as gone

class LivePage {
  constructor(show) {
    this.show = show;
    this.report = this.shown = page.report;
    this.version = null;
    this.reasons = [];
    this.reasonsOf = null;
    this.heard = Date.now();
    this.ended = false;
    this.asking = false;
    setInterval(() => this.check(), 1000);
    document.addEventListener("visibilitychange", () => this.look());
    this.listen();
  }

  listen() {
    this.news = new EventSource("news");
    this.news.onopen = () => { this.version = this.reasonsOf = null; }; // it may be another driver, which counts anew
    this.news.onmessage = (event) => this.told(JSON.parse(event.data));
    this.news.addEventListener("beat", () => this.hear());
    this.news.addEventListener("end", (event) => this.end(JSON.parse(event.data)));
    this.news.onerror = () => this.gone();
  }

  hear() {
    this.heard = Date.now();
    $("gone").hidden = true;
  }

  /** What is going on now; the report is asked for if there was an event. */
  told(now) {
    this.hear();
    this.now = now;
    this.look();
  }

  /** Show what is known; the driver need not work for a page that nobody sees. */
  look() {
    if (document.hidden || !this.now) return;
    this.apply();
    this.ask();
  }

  /** Ask for what is new, until nothing is: more may happen meanwhile. */
  async ask() {
    if (this.asking) return;
    this.asking = true;
    const answer = async (what) => (await fetch(what)).json();
    try {
      while (!this.ended && !(this.now.version === this.version && this.now.explained === this.reasonsOf)) {
        const { version, explained } = this.now;
        if (version !== this.version) { // is shown before the reasons come: they take longer
          const report = await answer("report.json");
          if (this.ended) return; // its last report has come
          this.version = version;
          this.take(report);
        }
        if (explained === this.reasonsOf) continue;
        const reasons = await answer("reasons.json");
        if (this.ended) return;
        Object.assign(this, { reasons, reasonsOf: explained });
        this.take(this.report);
      }
    } catch {
      this.gone();
    } finally {
      this.asking = false;
    }
  }

  take(report) {
    this.report = unchanged(this.report, { ...report, reasons: this.reasons });
    this.apply();
  }

  /** The report, with what has changed since: the instances, the input, and the lags of copies. */
  apply() {
    const { now, report } = this;
    const behind = new Map(now.copies.map((copy) => [`${copy.task} ${copy.instance}`, copy]));
    const known = report.copies.map((copy) => {
      const key = `${copy.task} ${copy.instance}`;
      const seen = behind.get(key);
      behind.delete(key);
      return seen ? { ...copy, role: seen.role, last: seen.last, peak: Math.max(copy.peak, seen.last), note: seen.note } : { ...copy, last: 0, note: "" };
    });
    const there = new Set(now.rows.map((row) => row.id));
    const rows = now.rows.length ? [...now.rows, ...report.now.filter((row) => row.state && !there.has(row.id))] : report.now;
    const named = new Set(now.figures.map((figure) => figure.name));
    const figures = [...report.figures.filter((figure) => !named.has(figure.name)), ...now.figures];
    const inputs = now.inputs.length ? now.inputs : report.inputs;
    const shown = { ...report, state: now.state, now: rows, inputs, figures, copies: [...known, ...behind.values()] };
    this.shown = unchanged(this.shown, shown);
    this.show(this.shown);
  }

  check() {
    if (Date.now() - this.heard > SILENT) this.gone();
  }

  gone() {
    if (this.ended) return;
    const since = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }).format(new Date(this.heard));
    $("gone").hidden = false;
    $("gone").textContent = `The driver is gone: it was heard of last at ${since}. This page shows what was known then, and looks for it again.`;
    if (this.news.readyState !== EventSource.CLOSED || this.again) return;
    this.again = setTimeout(() => { this.again = 0; this.listen(); }, 3000);
  }

  /** The stream has ended. Its last report comes with the news, because its server ends as well. */
  end({ now, report }) {
    this.ended = true;
    this.now = now;
    this.news.close();
    $("gone").hidden = true;
    document.body.dataset.ended = "";
    this.take(report);
  }
}

/** The new report, with the old values where they say the same: so only what has changed is shown again. */
function unchanged(old, report) {
  const same = (name) => old[name] !== undefined && (old[name] === report[name] || JSON.stringify(old[name]) === JSON.stringify(report[name]));
  return Object.fromEntries(Object.keys(report).map((name) => [name, same(name) ? old[name] : report[name]]));
}
