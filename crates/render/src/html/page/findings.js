// The list of findings: filter, search and sort; details are made when they are asked for.

const SHOWN_AT_FIRST = 100;

/**
 * What differs only in the call path is one entry, as on the terminal. Crashes are not alike.
 */
function entries() {
  const all = [];
  const places = new Map();
  page.runs.forEach((run, runIndex) =>
    (run.findings ?? []).forEach((finding, index) => {
      const frame = page.frames[page.stacks[finding.stack]?.[0]];
      const place =
        finding.file != null ? `${finding.file}:${finding.line}` : frame ? `${frame.module}+${frame.address}` : "";
      const key = finding.crash
        ? `${runIndex} ${index}`
        : [runIndex, finding.kind, finding.severity, Boolean(finding.known), place].join(" ");
      const entry = places.get(key);
      if (entry) {
        entry.findings.push(finding);
        entry.count += finding.count;
        return;
      }
      const { kind, severity, message, known = false, file, line } = finding;
      const path =
        file != null ? page.files[file].path : frame?.module != null ? page.modules[frame.module] : "unknown place";
      places.set(key, {
        run,
        runIndex,
        kind,
        severity,
        message,
        known,
        path,
        line,
        first: finding,
        findings: [finding],
        count: finding.count,
      });
      all.push(places.get(key));
    }),
  );
  all.forEach((entry, index) => (entry.number = index + 1));
  return all;
}

/** What a search looks at. */
function haystack(entry) {
  entry.words ??= entry.findings
    .flatMap((finding) => [
      `#${entry.number}`,
      finding.kind,
      finding.severity,
      finding.message,
      entry.path,
      finding.function,
      entry.run.name,
      finding.pm && page.pm_files[finding.pm.file],
      ...(finding.notes ?? []).map(text),
      ...(page.stacks[finding.stack] ?? []).flatMap((id) => [page.frames[id].function, position(page.frames[id])]),
    ])
    .filter(Boolean)
    .join("\n")
    .toLowerCase();
  return entry.words;
}

const byReport = (a, b) => a.number - b.number;
const SORTS = {
  severity: ["Severity", (a, b) => SEVERITIES[a.severity].order - SEVERITIES[b.severity].order || byReport(a, b)],
  file: ["File and line", (a, b) => a.path.localeCompare(b.path) || (a.line ?? 0) - (b.line ?? 0) || byReport(a, b)],
  kind: ["Kind", (a, b) => a.kind.localeCompare(b.kind) || byReport(a, b)],
  count: ["Most frequent", (a, b) => b.count - a.count || byReport(a, b)],
  report: ["Order of the report", byReport],
};

function findingsSection(all) {
  const options = (values, name = (value) => value) => values.map((value) => h("option", { value }, name(value)));
  const select = (label, id, ...content) => {
    const control = h("select", { id, onchange: () => refresh() }, ...content);
    return [h("label", {}, label, control), control];
  };
  const distinct = (value) => [...new Set(all.map(value))].sort();
  const search = h("input", {
    type: "search",
    id: "search",
    oninput: () => refresh(),
    autocomplete: "off",
    spellcheck: "false",
  });
  const [severityLabel, severities] = select(
    "Severity",
    "filter-severity",
    h("option", { value: "" }, "All"),
    options(Object.keys(SEVERITIES).filter((name) => all.some((entry) => entry.severity === name))),
  );
  const [kindLabel, kinds] = select(
    "Kind",
    "filter-kind",
    h("option", { value: "" }, "All"),
    options(distinct((entry) => entry.kind)),
  );
  const [fileLabel, files] = select(
    "File",
    "filter-file",
    h("option", { value: "" }, "All"),
    options(distinct((entry) => entry.path)),
  );
  const [knownLabel, known] = select(
    "Baseline",
    "filter-known",
    h("option", { value: "" }, "All"),
    h("option", { value: "new" }, "New"),
    h("option", { value: "known" }, "Known"),
  );
  const [runLabel, runs] = select(
    "Run",
    "filter-run",
    h("option", { value: "" }, "All"),
    page.runs.map((run, index) => h("option", { value: index }, run.name)),
  );
  const [sortLabel, sorts] = select(
    "Sort by",
    "sort",
    options(Object.keys(SORTS), (key) => SORTS[key][0]),
  );
  const showAll = () => {
    form.reset();
    refresh();
  };
  const reset = h("button", { type: "button", class: "reset", onclick: showAll }, "Reset");
  const compared = page.runs.some((run) => run.compared) || all.some((entry) => entry.known);
  const form = h(
    "form",
    {
      class: "tools",
      role: "search",
      "aria-label": "Findings",
      onsubmit: (event) => event.preventDefault(),
    },
    h("label", { class: "search" }, "Search", search),
    severityLabel,
    kindLabel,
    fileLabel,
    compared ? knownLabel : null,
    page.runs.length > 1 ? runLabel : null,
    sortLabel,
    reset,
  );

  const list = h("ol", { class: "list", "aria-label": "Findings" });
  const shown = h("p", { class: "shown", role: "status" });
  const expand = h("button", { type: "button", class: "plain", onclick: () => toggleAll() });
  const more = h("button", { type: "button", class: "more", onclick: () => showMore() });
  const empty = h(
    "p",
    { class: "empty" },
    "No finding matches. ",
    h("button", { type: "button", onclick: showAll }, "Show all"),
  );
  const items = new Map();
  let matching = [];
  let limit = SHOWN_AT_FIRST;

  const item = (entry) => {
    if (!items.has(entry)) items.set(entry, findingItem(entry));
    return items.get(entry);
  };

  function refresh(keepLimit) {
    if (keepLimit !== true) limit = SHOWN_AT_FIRST;
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    matching = all.filter(
      (entry) =>
        (!severities.value || entry.severity === severities.value) &&
        (!kinds.value || entry.kind === kinds.value) &&
        (!files.value || entry.path === files.value) &&
        (!known.value || entry.known === (known.value === "known")) &&
        (!runs.value || entry.runIndex === Number(runs.value)) &&
        terms.every((term) => haystack(entry).includes(term)),
    );
    matching.sort(SORTS[sorts.value][1]);
    const visible = matching.slice(0, limit);
    list.replaceChildren(...visible.map((entry) => item(entry).element));
    shown.textContent =
      matching.length === all.length
        ? plural(all.length, "finding")
        : `${number(matching.length)} of ${plural(all.length, "finding")}`;
    if (visible.length < matching.length) shown.textContent += `, the first ${number(visible.length)} are listed`;
    more.hidden = visible.length === matching.length;
    more.textContent = `Show ${number(Math.min(SHOWN_AT_FIRST, matching.length - visible.length))} more`;
    empty.hidden = matching.length > 0;
    expand.hidden = matching.length === 0;
    tellExpand();
  }

  function showMore() {
    const from = limit;
    limit += SHOWN_AT_FIRST;
    refresh(true);
    item(matching[from]).button.focus();
  }

  const visibleItems = () => matching.slice(0, limit).map(item);
  const tellExpand = () =>
    (expand.textContent = visibleItems().every((one) => one.isOpen()) ? "Collapse all" : "Expand all");
  function toggleAll() {
    const open = !visibleItems().every((one) => one.isOpen());
    visibleItems().forEach((one) => one.toggle(open));
    tellExpand();
  }
  list.addEventListener("click", () => tellExpand());

  /** Opens the finding of this number, whatever is filtered. */
  function reveal(wanted) {
    const entry = all[wanted - 1];
    if (!entry) return;
    if (!matching.includes(entry)) {
      showAll();
    }
    const place = matching.indexOf(entry);
    if (place >= limit) {
      limit = Math.ceil((place + 1) / SHOWN_AT_FIRST) * SHOWN_AT_FIRST;
      refresh(true);
    }
    const { element, button, toggle } = item(entry);
    toggle(true);
    document.querySelector(".finding.target")?.classList.remove("target");
    element.classList.add("target");
    element.scrollIntoView();
    button.focus({ preventScroll: true });
    tellExpand();
  }

  /** Of the counts: only this kind, or only this file. */
  function only(what, value) {
    form.reset();
    (what === "kind" ? kinds : files).value = value;
    refresh();
    document.getElementById("findings").scrollIntoView();
    (what === "kind" ? kinds : files).focus({ preventScroll: true });
  }

  refresh();
  const section = h(
    "section",
    { id: "findings", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title", tabindex: "-1" }, "Findings"),
    ...(all.length
      ? [form, h("div", { class: "above" }, shown, expand), list, more, empty]
      : [h("p", { class: "empty" }, "There are none.")]),
  );
  return { section, reveal, only };
}

function findingItem(entry) {
  const id = `finding-${entry.number}`;
  const chevron = svg(
    "svg",
    { viewBox: "0 0 10 10", class: "chevron", "aria-hidden": "true" },
    svg("path", { d: "m3 1 4 4-4 4" }),
  );
  const where = h(
    "span",
    { class: "where" },
    h("span", { class: "kind" }, entry.kind),
    h("span", {}, entry.path + (entry.line ? `:${entry.line}` : "")),
    entry.first.function ? h("span", { class: "function" }, h("code", {}, entry.first.function)) : null,
    page.runs.length > 1 ? h("span", {}, entry.run.name) : null,
  );
  const side = h(
    "span",
    { class: "side" },
    entry.known ? h("span", { class: "tag" }, "known") : null,
    entry.first.repaired ? h("span", { class: "tag" }, "patch") : null,
    entry.count > 1 ? h("span", {}, `${number(entry.count)}×`, h("span", { class: "unseen" }, " seen")) : null,
  );
  const button = h(
    "button",
    { type: "button", "aria-expanded": "false", "aria-controls": `${id}-detail`, onclick: () => toggle() },
    chevron,
    severity(entry.severity),
    h("span", {}, h("span", { class: "message" }, ...withCode(entry.message)), where),
    side,
  );
  const detail = h("div", { class: "detail", id: `${id}-detail`, hidden: true });
  const element = h(
    "li",
    { class: "finding", id },
    h(
      "h3",
      {},
      button,
      h("a", { class: "anchor", href: `#${id}`, "aria-label": `Link to finding ${entry.number}` }, `#${entry.number}`),
    ),
    detail,
  );
  const isOpen = () => !detail.hidden;
  function toggle(open = detail.hidden) {
    detail.hidden = !open;
    button.setAttribute("aria-expanded", open);
    element.classList.toggle("open", open);
    // A picture measures itself: it has to be on the page first.
    if (open && !detail.hasChildNodes()) details(entry, detail);
  }
  return { element, button, toggle, isOpen };
}
