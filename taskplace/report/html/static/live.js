// The live page: asks its server for news, and says when the driver is gone.

const SILENT = 10000; // milliseconds without news or a heartbeat, after which the driver counts as gone

class LivePage {
  constructor(show) {
    this.show = show;
    this.report = page.report;
    this.version = null;
    this.reasonsOf = null;
    this.heard = Date.now();
    this.ended = false;
    this.asking = false;
    setInterval(() => this.check(), 1000);
    document.addEventListener("visibilitychange", () => { if (this.now) this.told(this.now); });
    this.listen();
  }

  listen() {
    this.news = new EventSource("news");
    this.news.onmessage = (event) => this.told(JSON.parse(event.data));
    this.news.addEventListener("beat", () => this.hear());
    this.news.addEventListener("end", () => this.end());
    this.news.onerror = () => { if (!this.ended) this.gone(); };
  }

  hear() {
    this.heard = Date.now();
    if (!this.ended) $("gone").hidden = true;
  }

  /** What is going on now; the report is asked for if there was an event. */
  told(now) {
    if (!this.ended) this.hear();
    this.now = now;
    if (document.hidden) return; // the driver need not work for a page that nobody sees
    if (now.version !== this.version || now.explained !== this.reasonsOf) this.ask(now);
    this.apply();
  }

  async ask(now) {
    if (this.asking) return;
    this.asking = true;
    try {
      const report = now.version === this.version ? this.report : await (await fetch("report.json")).json();
      if (now.explained !== this.reasonsOf) {
        this.reasons = await (await fetch("reasons.json")).json();
        this.reasonsOf = now.explained;
      }
      this.report = unchanged(this.report, { ...report, reasons: this.reasons || [] });
      this.version = now.version;
      this.apply();
    } catch {
      this.gone();
    } finally {
      this.asking = false;
    }
  }

  /** The report, with what has changed since: the instances, and the lags of copies. */
  apply() {
    const { now, report } = this;
    const behind = new Map(now.copies.map((copy) => [`${copy.task} ${copy.instance}`, copy]));
    const known = report.copies.map((copy) => {
      const key = `${copy.task} ${copy.instance}`;
      const seen = behind.get(key);
      behind.delete(key);
      return seen ? { ...copy, role: seen.role, last: seen.last, peak: Math.max(copy.peak, seen.last), note: seen.note } : { ...copy, last: 0, note: "" };
    });
    const copies = [...known, ...behind.values()].sort((a, b) => b.last - a.last || b.peak - a.peak);
    const shown = { ...report, state: now.state, now: now.rows.length ? now.rows : report.now, copies };
    this.shown = unchanged(this.shown || {}, shown);
    this.show(this.shown);
  }

  check() {
    if (!this.ended && Date.now() - this.heard > SILENT) this.gone();
  }

  gone() {
    const since = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }).format(new Date(this.heard));
    $("gone").hidden = false;
    $("gone").textContent = `The driver is gone: it was heard of last at ${since}. This page shows what was known then, and looks for it again.`;
    if (this.news.readyState !== EventSource.CLOSED || this.again) return;
    this.again = setTimeout(() => { this.again = 0; this.listen(); }, 3000);
  }

  end() {
    this.ended = true;
    this.news.close();
    $("gone").hidden = true;
    document.body.dataset.ended = "";
  }
}

/** The new report, with the old values where they say the same: so only what has changed is shown again. */
function unchanged(old, report) {
  const same = (name) => old[name] !== undefined && (old[name] === report[name] || JSON.stringify(old[name]) === JSON.stringify(report[name]));
  return Object.fromEntries(Object.keys(report).map((name) => [name, same(name) ? old[name] : report[name]]));
}
