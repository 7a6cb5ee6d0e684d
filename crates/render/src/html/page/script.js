// Puts the page together. Last of the files.

const total = (value) => page.runs.reduce((sum, run) => sum + (value(run) ?? 0), 0);

function verdict(all) {
  const fresh = all.filter((entry) => !entry.known);
  const known = all.length - fresh.length;
  const counts = Object.keys(SEVERITIES)
    .map((name) => [fresh.filter((entry) => entry.severity === name).length, name])
    .filter(([count]) => count);
  const errors = page.runs.filter((run) => run.error).length;
  const complete = page.runs.every((run) => run.error || run.trace.complete);
  const doubtful = page.runs.some((run) => run.inconclusive?.length);
  let words =
    counts.map(([count, name]) => plural(count, name)).join(", ") || (known ? "No new findings" : "No findings");
  if (known) words += ` (${number(known)} known)`;
  if (doubtful && !counts.length) words += ", but not clean";
  else if (!complete && !counts.length) words += ", but the trace is incomplete";
  if (errors) words += `; ${plural(errors, "run")} failed`;
  return words;
}

function leads() {
  return page.runs.map((run) => {
    const name = page.runs.length > 1 ? `${run.name}: ` : "";
    if (run.error) return `${name}could not be done: ${run.error}`;
    const program = run.program.command[0] ?? "the program";
    let words = `${name}\`${program}\` ${run.program.ended}`;
    if (run.stats) {
      const { stats } = run;
      words += `; ${plural(stats.states_tested, "crash state")} tested in ${stats.seconds.toFixed(1)} s`;
      words += stats.states_failed ? `, ${number(stats.states_failed)} failed` : ", none failed";
      if (stats.cut_short) words += "; stopped before all were tested";
      if (stats.cut_short && stats.points_reached < stats.points_total)
        words += `, at ${number(stats.points_reached)} of ${plural(stats.points_total, "crash point")}`;
    }
    return `${words}.`;
  });
}

function facts() {
  const stats = page.runs.map((run) => run.stats).filter(Boolean);
  const of = (key) => stats.reduce((sum, one) => sum + one[key], 0);
  const known = [
    ["Stores", total((run) => run.trace?.stores)],
    ["Flushes", total((run) => run.trace?.flushes)],
    ["Fences", total((run) => run.trace?.fences)],
    ...(stats.length
      ? [
          ["Crash states tested", of("states_tested")],
          ["States pruned", of("states_pruned")],
          ["States failed", of("states_failed")],
        ]
      : []),
  ];
  return h(
    "dl",
    { class: "facts" },
    ...known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, number(value)))),
  );
}

function banners() {
  return page.runs
    .filter((run) => !run.error)
    .flatMap((run) => {
      const list = (items) => h("ul", {}, ...items.map((item) => h("li", {}, ...withCode(item))));
      const incomplete = run.trace.complete
        ? []
        : [
            h(
              "div",
              { class: "banner" },
              h("strong", {}, "The trace is incomplete"),
              list([
                ...run.trace.incomplete,
                "What is reported was seen; what was not recorded can hold more, or can explain a finding away.",
              ]),
            ),
          ];
      const doubts = (run.inconclusive ?? []).map(({ message, notes, help }) =>
        h("div", { class: "banner" }, h("strong", {}, ...withCode(message)), list([...(notes ?? []), help])),
      );
      const told = [...doubts, ...incomplete];
      return run.warnings?.length
        ? [...told, h("div", { class: "banner" }, h("strong", {}, "Warnings"), list(run.warnings))]
        : told;
    });
}

/** Bars of how many findings there are of each kind or in each file; a press shows only them. */
function counts(title, all, value, only) {
  const groups = new Map();
  for (const entry of all) groups.set(value(entry), [...(groups.get(value(entry)) ?? []), entry]);
  const rows = [...groups].sort(([, a], [, b]) => b.length - a.length);
  const most = rows[0]?.[1].length ?? 1;
  const row = ([name, list]) => {
    const worst = Object.keys(SEVERITIES).find((severity) => list.some((entry) => entry.severity === severity));
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", title: page.kinds[name]?.summary, onclick: () => only(name) },
        h("span", { class: "name" }, severity(worst, true), " ", h("span", { class: "mono" }, name)),
        h("span", { class: `bar ${worst}`, style: `width: ${(100 * list.length) / most}%` }),
        h(
          "span",
          { class: "number" },
          number(list.length),
          h("span", { class: "unseen" }, list.length === 1 ? " finding" : " findings"),
        ),
      ),
    );
  };
  const shown = h("ul", { class: "counts" }, ...rows.slice(0, 8).map(row));
  const more =
    rows.length > 8
      ? h(
          "button",
          {
            type: "button",
            class: "more",
            onclick: () => {
              shown.append(...rows.slice(8).map(row));
              more.remove();
            },
          },
          `Show ${number(rows.length - 8)} more`,
        )
      : null;
  return h("div", {}, h("h2", {}, title), shown, more);
}

/** A section with one part for each run that has something for it. */
function perRun(id, title, has, content) {
  const runs = page.runs.filter(has);
  if (!runs.length) return null;
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    ...runs
      .flatMap((run) => [page.runs.length > 1 ? h("h3", {}, run.name) : null, ...[content(run)].flat()])
      .filter(Boolean),
  );
}

function tested(run) {
  const { stats } = run;
  const rows = [
    ["Strategy", stats.strategy],
    ["Crash points", `${number(stats.points_reached)} of ${number(stats.points_total)}`],
    ["Recoveries run", number(stats.recoveries ?? 0)],
    stats.first_failure
      ? [
          "First failure",
          `after ${plural(stats.first_failure.states, "state")}, ${stats.first_failure.seconds.toFixed(2)} s`,
        ]
      : null,
    stats.behaviours
      ? [
          "Update behaviours",
          `${number(stats.behaviours.single_groups + stats.behaviours.joint_groups)} of ${number(stats.behaviours.single + stats.behaviours.joint)} stand for all`,
        ]
      : null,
    ["Ended", stats.cut_short ? "before all states were tested" : "all states of the strategy were tested"],
  ].filter(Boolean);
  return [
    run.progress?.length > 1 ? progressFigure(run) : null,
    h(
      "dl",
      { class: "small-facts" },
      ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
  ];
}

/** The files that were looked at, and those that were left out. */
function fileTable(run) {
  const table = (title, files) =>
    files.length
      ? [
          h("h3", {}, title),
          h(
            "ul",
            { class: "pm-files" },
            ...files.map((file) => h("li", {}, h("span", { class: "mono" }, file.path), ` ${file.words}`)),
          ),
        ]
      : [];
  return [...table("Looked at", run.files ?? []), ...table("Left out", run.left_out ?? [])];
}

function theme() {
  const key = "crashproof-theme";
  const apply = (value) => {
    if (value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
  };
  const box = document.getElementById("theme");
  // A page from disk may have no storage.
  let stored = null;
  try {
    stored = localStorage.getItem(key);
  } catch {}
  const input = [...box.querySelectorAll("input")].find((one) => one.value === stored);
  if (input) {
    input.checked = true;
    apply(stored);
  }
  box.addEventListener("change", (event) => {
    apply(event.target.value);
    try {
      localStorage.setItem(key, event.target.value);
    } catch {}
  });
}

function start() {
  const main = document.getElementById("main");
  const all = entries();
  const { section, reveal, only } = findingsSection(all);
  const summary = h(
    "section",
    { id: "summary", class: "summary", "aria-label": "Summary" },
    h(
      "div",
      { class: "verdict" },
      h("h1", {}, verdict(all)),
      ...leads().map((words) => h("p", { class: "lead" }, ...withCode(words))),
      page.command ? h("p", { class: "command mono" }, `$ ${page.command}`) : null,
    ),
    facts(),
    ...banners(),
    all.length
      ? h(
          "div",
          { class: "pair" },
          counts(
            "Findings by kind",
            all,
            (entry) => entry.kind,
            (name) => only("kind", name),
          ),
          counts(
            "Findings by file",
            all,
            (entry) => entry.path,
            (name) => only("file", name),
          ),
        )
      : null,
  );
  const sections = [
    ["Summary", summary],
    ["Findings", section],
    [
      "Patch",
      perRun(
        "patch",
        "Suggested patch",
        (run) => run.patch,
        (run) => diff(run.patch),
      ),
    ],
    [
      "Files",
      perRun("pm-files", "Files", (run) => run.files?.length || run.left_out?.length, fileTable),
    ],
    ["Test", perRun("test", "How the test went", (run) => run.stats, tested)],
    [
      "Traffic",
      perRun("traffic", "Traffic to persistent memory, by function", (run) => run.traffic?.length, trafficTable),
    ],
  ].filter(([, element]) => element);
  main.append(patterns(), ...sections.map(([, element]) => element));
  document
    .getElementById("sections")
    .append(h("ul", {}, ...sections.map(([name, element]) => h("li", {}, h("a", { href: `#${element.id}` }, name)))));
  document
    .getElementById("footer")
    .append(`Written by ${page.generated_by}. This file is complete in itself: nothing is loaded from elsewhere.`);
  theme();
  const follow = () => {
    const match = /^#finding-(\d+)$/.exec(location.hash);
    if (match) reveal(Number(match[1]));
  };
  addEventListener("hashchange", follow);
  follow();
  // Once more after the browser has gone to the fragment by itself, which takes the focus away.
  addEventListener("load", () => setTimeout(follow));
}

start();
