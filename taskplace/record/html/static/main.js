// Shows the report of this page, switches the theme, and keeps the list of contents.

const THEMES = ["auto", "light", "dark"];

function setTheme(theme, remember = true) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  try {
    if (remember) localStorage.setItem("taskplace-theme", theme);
  } catch { /* a page of a file may have no storage */ }
  dispatchEvent(new Event("themechange"));
}

function themes() {
  let theme = "auto";
  try {
    theme = localStorage.getItem("taskplace-theme") || "auto";
  } catch { /* as above */ }
  setTheme(THEMES.includes(theme) ? theme : "auto", false);
  $("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "auto";
    setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
}

function contents() {
  const shown = [...document.querySelectorAll("main section")].filter((section) => !section.hidden);
  const names = shown.map((section) => section.id).join();
  if ($("contents").dataset.names === names) return;
  $("contents").dataset.names = names;
  $("contents").replaceChildren(...shown.map((section) =>
    el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
}

/** Mark the section in view in the list of contents. */
function follow() {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of $("contents").children) {
        if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main section").forEach((section) => seen.observe(section));
}

function showFigures(report) {
  if (page.report && page.report.figures === report.figures) return;
  $("figures").replaceChildren(...report.figures.map((figure) =>
    el("div", { class: "figure", "data-tone": figure.tone }, el("dt", {}, figure.name), el("dd", { class: "value" }, figure.value),
      figure.note ? el("dd", { class: "note" }, figure.note) : null)));
}

function showState({ word, text, tone }) {
  if ($("state-word").textContent !== word) $("state-word").textContent = word;
  $("state-word").dataset.tone = tone;
  if ($("state-text").textContent !== text) $("state-text").textContent = text;
}

const page = { charts: new Charts(), sections: null, report: null };

function show(report) {
  page.charts.begin(report);
  page.sections = page.sections || sectionsOf(page.charts, report);
  $("title").textContent = report.title;
  showState(report.state);
  showFigures(report);
  $("warnings").replaceChildren(...report.warnings.map((text) => el("p", { class: "warning" }, `Warning: ${text}`)));
  page.sections.forEach((section) => section.show(report));
  contents();
  const made = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" }).format(new Date(1000 * report.made));
  $("made").textContent = `Made on ${made}. Lags are in records. The data of this page is JSON with the schema ${report.schema}.`;
  page.report = report;
  $("left-out").textContent = report.left_out.length ? `Not on this page: ${report.left_out.join("; ")}.` : "";
}

themes();
show(JSON.parse($("report").textContent));
follow();
if ("live" in document.body.dataset) page.live = new LivePage(show);
