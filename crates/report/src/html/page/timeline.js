// The cache lines before a crash: one row a line, time to the right, one event a step. State is colour, pattern and word;
// events are shapes; what became of a store is a tick or a cross in it.

const HEAD = 34;
const ROW = 34;
const FOOT = 22;
const AFTER = 112;
const STATES = { dirty: "dirty", pending: "pending", persistent: "persistent" };
const EVENTS = {
  "store": "Store",
  "nt-store": "Non-temporal store",
  "flush": "Flush",
  "flush-now": "Flush (clflush)",
  "fence": "Fence",
  "sync": "Sync",
  "write": "Write to the file",
  "output": "Output",
  "crash": "Power fails",
};
const OUTCOMES = {
  certain: "It was durable when power failed.",
  persisted: "Nothing guaranteed it, but in this crash it had persisted.",
  missing: "In this crash it is lost.",
};

const PATTERNS = {
  dirty: () => svg("path", { d: "M-2 2 2-2M0 8 8 0M6 10 10 6", class: "pattern-dirty" }),
  useless: () => svg("path", { d: "M-2 2 2-2M0 8 8 0M6 10 10 6", class: "pattern-useless" }),
  pending: () => [svg("circle", { cx: 2, cy: 2, r: 1.1, class: "pattern-pending" }), svg("circle", { cx: 6, cy: 6, r: 1.1, class: "pattern-pending" })],
};

/** A stretch of a line in one state. Persistent is thin: nothing can happen to it. */
function stateBar(state, x, y, width) {
  const height = state === "persistent" ? 4 : 16;
  const shape = { x, y: y - height / 2, width, height };
  const bar = svg("rect", { class: `state ${state}`, ...shape });
  if (!PATTERNS[state]) return [bar];
  return [bar, svg("rect", { ...shape, fill: `url(#pattern-${state})` })];
}

/** The patterns, once for the page. */
function patterns() {
  const one = (state) => svg("pattern", { id: `pattern-${state}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, ...[PATTERNS[state]()].flat());
  return svg("svg", { width: 0, height: 0, "aria-hidden": "true", style: "position: absolute" }, svg("defs", {}, ...Object.keys(PATTERNS).map(one)));
}

const TICK = "m-3.2 .2 2.2 2.6 4.2-5";
const CROSS = "m-2.7-2.7 5.4 5.4m0-5.4-5.4 5.4";

function eventShape(kind, x, y, outcome) {
  const at = { transform: `translate(${x} ${y})` };
  switch (kind) {
    case "store":
    case "nt-store":
    case "write": {
      const body = kind === "write" ? svg("rect", { x: -7, y: -7, width: 14, height: 14 }) : svg("circle", { r: 7.5 });
      const ring = kind === "nt-store" ? svg("circle", { r: 10.5, class: "ring" }) : null;
      const sign = outcome === "missing" ? CROSS : outcome === "persisted" || outcome === "certain" ? TICK : null;
      return svg("g", { ...at, class: `stored ${outcome ?? "unknown"}` }, ring, body, sign && svg("path", { d: sign, class: "sign" }));
    }
    case "flush":
      return svg("path", { ...at, d: "M-7-6H7L0 7Z", class: "shape" });
    case "flush-now":
      return svg("path", { ...at, d: "M-7-6H7L0 7Z", class: "shape store" });
    case "fence":
    case "sync":
      return svg("rect", { ...at, x: -6, y: -6, width: 12, height: 12, class: `shape${kind === "fence" ? " store" : ""}` });
    case "output":
      return svg("path", { ...at, d: "M-8-7H8V4H-1L-5 8V4H-8Z", class: "shape" });
    default:
      return svg("path", { ...at, d: "M2-10-6 2H-1L-3 10 6-3H1Z", class: "bolt" });
  }
}

const LEGEND = ["store", "nt-store", "write", "flush", "flush-now", "fence", "sync", "output"];
const LEGEND_WORDS = { "flush-now": "flush that waits", "write": "write to file", "nt-store": "non-temporal store" };

function legend(timeline) {
  const swatch = (content) => svg("svg", { width: 24, height: 22, viewBox: "-12 -11 24 22", "aria-hidden": "true", class: "timeline" }, ...[content].flat());
  const kinds = new Set(timeline.events.map((event) => event.kind));
  const states = Object.keys(STATES).map((state) => h("li", {}, swatch(stateBar(state, -11, 0, 22)), STATES[state]));
  const events = LEGEND.filter((kind) => kinds.has(kind)).map((kind) =>
    h("li", {}, swatch(eventShape(kind, 0, 0)), LEGEND_WORDS[kind] ?? kind));
  const outcomes = [["persisted", "survived"], ["missing", "lost"]].map(([outcome, words]) =>
    h("li", {}, swatch(eventShape("store", 0, 0, outcome)), words));
  return h("ul", { class: "legend", "aria-label": "Legend" }, ...states, ...events, ...outcomes);
}

/** What survives of each row: "survived", "lost", "in part", or nothing was at stake. */
function survivors(timeline) {
  return timeline.lines.map((_, row) => {
    const all = timeline.events.filter((event) => event.lines?.includes(row)).flatMap((event) =>
      event.pieces?.length ? event.pieces.map(([, , outcome]) => outcome) : event.outcome ? [event.outcome] : []);
    const lost = all.includes("missing");
    const kept = all.includes("persisted");
    if (lost) return kept ? ["lost", "✗ lost in part"] : ["lost", "✗ lost"];
    return kept || all.includes("certain") ? ["survived", "✓ survived"] : ["", "unchanged"];
  });
}

/** A step in words, for everybody: the picture is a help, not the only way to read it. */
function stepWords(timeline, event) {
  const crash = timeline.events.findIndex(({ kind }) => kind === "crash");
  const beyond = crash >= 0 && timeline.events.indexOf(event) > crash;
  return (beyond ? "Not reached; it would have been next: " : "") + eventWords(timeline, event);
}

function eventWords(timeline, event) {
  const frame = page.frames[event.frame];
  const place = placeOf(frame);
  const line = (row) => hex(timeline.lines[row].offset);
  if (event.kind === "crash") {
    const of = (wanted) => survivors(timeline).flatMap(([outcome], row) => (outcome === wanted ? [line(row)] : []));
    const told = (rows, words) => (rows.length ? ` ${rows.length === 1 ? "Line" : "Lines"} ${rows.join(", ")}: ${words}.` : "");
    return `Power fails here${place ? `, after ${place}` : ""}.${told(of("lost"), "not all that was stored is there afterwards")}${told(of("survived"), "what was stored survives")}`;
  }
  let words = EVENTS[event.kind];
  if (event.length != null && event.lines?.length) words += ` of ${plural(event.length, "byte")} at ${hex(event.offset)} of ${lastPart(page.pm_files[timeline.lines[event.lines[0]].file])}`;
  else if (event.kind.startsWith("flush") && event.lines?.length) words += ` of line ${event.lines.map(line).join(", ")}`;
  if (event.kind === "output") words += ` “${event.data?.trim() ?? ""}”`;
  words += `${place ? ` by ${place}` : ""}.`;
  const byState = new Map();
  for (const [row, state] of event.states ?? []) byState.set(state, [...(byState.get(state) ?? []), line(row)]);
  for (const [state, rows] of byState) words += ` ${rows.length === 1 ? "Line" : "Lines"} ${rows.join(", ")} ${rows.length === 1 ? "is" : "are"} now ${state}.`;
  if (OUTCOMES[event.outcome]) words += ` ${OUTCOMES[event.outcome]}`;
  const pieces = event.pieces ?? [];
  if (pieces.length) words += ` It is torn: ${pieces.map(([offset, length, outcome]) => `${plural(length, "byte")} at ${hex(offset)} ${outcome === "missing" ? "lost" : outcome === "later" ? "still to come" : "survived"}`).join(", ")}.`;
  return words;
}

/** `follow(file, line)` is told the source line of each step. `begin` shows the crash, once the figure is on the page. */
function timelineFigure(timeline, follow) {
  const { lines, events } = timeline;
  const crash = events.findIndex((event) => event.kind === "crash");
  const column = events.length > 16 ? 36 : 52;
  const height = HEAD + ROW * lines.length + FOOT;
  const middle = (row) => HEAD + ROW * row + ROW / 2;
  // Where the column of an event begins: what survived stands right of the crash.
  const left = (index) => 14 + column * index + (crash >= 0 && index > crash ? AFTER : 0);
  const center = (index) => left(index) + column / 2;
  const width = left(events.length) + 14;
  const severalThreads = new Set(events.map((event) => event.thread)).size > 1;

  // States of all rows after each event.
  let state = lines.map((line) => line.state);
  const before = state;
  const after = events.map((event) => {
    state = [...state];
    for (const [row, changed] of event.states ?? []) state[row] = changed;
    return state;
  });

  const outcome = survivors(timeline);
  const groups = events.map((event, index) => {
    const end = index + 1 < events.length ? center(index + 1) : width - 6;
    const from = event.kind === "crash" ? left(index) + column / 2 + AFTER : center(index);
    const bars = lines.flatMap((_, row) => stateBar(after[index][row], from, middle(row), end - from));
    const shapes = [];
    const rows = event.lines ?? [];
    if (event.kind === "crash") {
      const zigzag = Array.from({ length: lines.length * 2 + 1 }, (_, step) => `${center(index) + (step % 2 ? 5 : -5)} ${HEAD - 6 + (step * ROW) / 2}`);
      shapes.push(svg("polyline", { points: zigzag.join(" "), class: "crash-line" }), eventShape("crash", center(index), 15));
      shapes.push(svg("text", { x: center(index) + 14, y: 19, class: "crash" }, "power fails"));
      outcome.forEach(([className, words], row) => shapes.push(svg("text", { x: center(index) + 14, y: middle(row) + 4, class: className || "small" }, words)));
    } else if (event.kind === "fence" || event.kind === "sync") {
      shapes.push(svg("line", { x1: center(index), x2: center(index), y1: HEAD - 12, y2: height - FOOT, class: "fence-line" }), eventShape(event.kind, center(index), 15));
    } else if (event.kind === "output") {
      shapes.push(eventShape("output", center(index), 15));
    } else {
      const torn = event.pieces?.some(([, , outcome]) => outcome === "missing") ? "missing" : event.pieces?.[0]?.[2];
      shapes.push(...rows.map((row) => eventShape(event.kind, center(index), middle(row), event.outcome ?? torn)));
    }
    const foot = svg("text", { x: center(index), y: height - 6, "text-anchor": "middle", class: "small" }, severalThreads ? `${index + 1}·T${event.thread}` : String(index + 1));
    return svg("g", { class: "event", onclick: () => show(index) },
      svg("title", {}, stepWords(timeline, event)),
      svg("rect", { x: left(index), y: 0, width: column, height, fill: "transparent" }),
      svg("g", { class: crash >= 0 && index >= crash ? "beyond" : null }, ...bars), ...shapes, foot);
  });
  const start = lines.flatMap((_, row) => stateBar(before[row], 4, middle(row), center(0) - 4));
  const rules = lines.map((_, row) => svg("line", { x1: 0, x2: width, y1: HEAD + ROW * (row + 1), y2: HEAD + ROW * (row + 1), class: "row" }));
  const cursor = svg("rect", { y: 1, width: column - 2, height: height - 2, rx: 4, class: "cursor" });
  const files = new Set(lines.map((line) => line.file)).size;
  const names = lines.map((line, row) => svg("text", { x: 12, y: middle(row) + 4, class: "mono" }, (files > 1 ? `${lastPart(page.pm_files[line.file])} ` : "") + hex(line.offset)));
  const longest = Math.max(...names.map((name) => name.textContent.length));
  const namesWidth = Math.min(40 + longest * 7.4, 190);

  const picture = svg("svg", { width, height, class: "timeline", role: "img", "aria-label": `Timeline of ${plural(lines.length, "cache line")} and ${plural(events.length, "event")}; the steps below say it in words` },
    ...rules, ...start, ...groups, cursor);
  const nameColumn = svg("svg", { width: namesWidth, height, "aria-hidden": "true", class: "timeline names" },
    svg("text", { x: 12, y: 19, class: "small" }, "cache line"), ...rules.map((rule) => rule.cloneNode()), ...names);
  const view = scrolling("Timeline of cache lines", picture);

  const slider = h("input", { type: "range", min: 1, max: events.length, step: 1, "aria-label": "Step", oninput: () => show(slider.value - 1) });
  const button = (label, sign, target) => h("button", { type: "button", "aria-label": label, title: label, onclick: () => show(target()) }, sign);
  let at = 0;
  const [first, previous, next, last] = [
    button("First step", "⇤", () => 0),
    button("Previous step", "←", () => at - 1),
    button("Next step", "→", () => at + 1),
    button("Last step", "⇥", () => events.length - 1),
  ];
  const toCrash = crash >= 0 ? h("button", { type: "button", onclick: () => show(crash) }, "Crash") : null;
  const count = h("span", { class: "count" });
  const said = h("p", { class: "said", role: "status", "aria-live": "polite" });
  const now = h("ul", { class: "now-states", "aria-label": "Cache lines after this step" });

  function show(index) {
    at = Math.min(Math.max(index, 0), events.length - 1);
    const event = events[at];
    groups.forEach((group, other) => group.classList.toggle("future", other > at));
    cursor.setAttribute("x", left(at) + 1);
    cursor.setAttribute("width", (at === crash ? AFTER : 0) + column - 2);
    slider.value = at + 1;
    slider.setAttribute("aria-valuetext", `Step ${at + 1} of ${events.length}: ${EVENTS[event.kind]}`);
    count.textContent = `Step ${at + 1} of ${events.length}`;
    const code = statement(page.frames[event.frame]);
    said.replaceChildren(h("span", {}, stepWords(timeline, event)), code ? h("code", { class: "statement" }, code) : "");
    now.replaceChildren(...lines.map((line, row) => {
      const [className, words] = at === crash && outcome[row][0] ? outcome[row] : [after[at][row], STATES[after[at][row]]];
      return h("li", { class: className }, h("span", { class: "mono" }, hex(line.offset)), ` ${words}`);
    }));
    // Not `disabled`: that would take the focus away from who steps to the end.
    for (const one of [first, previous]) one.setAttribute("aria-disabled", at === 0);
    for (const one of [next, last]) one.setAttribute("aria-disabled", at === events.length - 1);
    const frame = page.frames[event.frame];
    follow?.(frame.file, frame.line);
    const [from, to] = [left(at) - column, left(at) + 2 * column + (at === crash ? AFTER : 0)];
    if (from < view.scrollLeft) view.scrollLeft = from;
    else if (to > view.scrollLeft + view.clientWidth) view.scrollLeft = to - view.clientWidth;
  }

  const moves = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => events.length - 1 };
  const figure = h("figure", {
    class: "picture",
    role: "group",
    "aria-label": "Timeline of cache lines, step by step; the arrow keys go from step to step",
    onkeydown: (key) => {
      if (!moves[key.key] || key.target === slider || key.altKey || key.ctrlKey || key.metaKey) return;
      key.preventDefault();
      show(moves[key.key]());
    },
  }, legend(timeline),
  h("div", { class: "rows" }, nameColumn, view),
  h("div", { class: "stepper" }, first, previous, next, last, toCrash, slider, count), said, now);
  const begin = () => show(crash >= 0 ? crash : events.length - 1);
  return { figure, begin };
}
