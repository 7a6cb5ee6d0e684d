// The cache lines before a crash: one row a line, time to the right, one event a step. State is colour, pattern and word;
// events are shapes; what became of a store is a tick or a cross in it.

const HEAD = 34;
const ROW = 34;
const FOOT = 22;
const AFTER = 112;
const STATES = ["dirty", "pending", "persistent"];
const PATTERNS = {
  dirty: () => svg("path", { d: "M-2 2 2-2M0 8 8 0M6 10 10 6", class: "pattern-dirty" }),
  useless: () => svg("path", { d: "M-2 2 2-2M0 8 8 0M6 10 10 6", class: "pattern-useless" }),
  pending: () => [
    svg("circle", { cx: 2, cy: 2, r: 1.1, class: "pattern-pending" }),
    svg("circle", { cx: 6, cy: 6, r: 1.1, class: "pattern-pending" }),
  ],
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
  const one = (state) =>
    svg(
      "pattern",
      { id: `pattern-${state}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
      ...[PATTERNS[state]()].flat(),
    );
  return svg(
    "svg",
    { width: 0, height: 0, "aria-hidden": "true", style: "position: absolute" },
    svg("defs", {}, ...Object.keys(PATTERNS).map(one)),
  );
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
      return svg(
        "g",
        { ...at, class: `stored ${outcome ?? "unknown"}` },
        ring,
        body,
        sign && svg("path", { d: sign, class: "sign" }),
      );
    }
    case "flush":
      return svg("path", { ...at, d: "M-7-6H7L0 7Z", class: "shape" });
    case "flush-now":
      return svg("path", { ...at, d: "M-7-6H7L0 7Z", class: "shape store" });
    case "fence":
    case "sync":
      return svg("rect", {
        ...at,
        x: -6,
        y: -6,
        width: 12,
        height: 12,
        class: `shape${kind === "fence" ? " store" : ""}`,
      });
    case "file":
      return svg("path", { ...at, d: "M-6-8H2L6-4V8H-6Z", class: "shape" });
    case "gap":
      return svg("text", { ...at, "text-anchor": "middle", class: "gap" }, "⋯");
    case "output":
      return svg("path", { ...at, d: "M-8-7H8V4H-1L-5 8V4H-8Z", class: "shape" });
    default:
      return svg("path", { ...at, d: "M2-10-6 2H-1L-3 10 6-3H1Z", class: "bolt" });
  }
}

const LEGEND = ["store", "nt-store", "write", "flush", "flush-now", "fence", "sync", "file", "output"];
const LEGEND_WORDS = {
  "flush-now": "flush that waits",
  write: "write to file",
  "nt-store": "non-temporal store",
  file: "change of the file",
};

function legend(timeline) {
  const swatch = (content) =>
    svg(
      "svg",
      { width: 24, height: 22, viewBox: "-12 -11 24 22", "aria-hidden": "true", class: "timeline" },
      ...[content].flat(),
    );
  const kinds = new Set(timeline.events.map((event) => event.kind));
  const states = STATES.map((state) => h("li", {}, swatch(stateBar(state, -11, 0, 22)), state));
  const events = LEGEND.filter((kind) => kinds.has(kind)).map((kind) =>
    h("li", {}, swatch(eventShape(kind, 0, 0)), LEGEND_WORDS[kind] ?? kind),
  );
  const outcomes = [
    ["persisted", "survived"],
    ["missing", "lost"],
  ].map(([outcome, words]) => h("li", {}, swatch(eventShape("store", 0, 0, outcome)), words));
  return h("ul", { class: "legend", "aria-label": "Legend" }, ...states, ...events, ...outcomes);
}

/** The zigzag, and right of it what is there after the crash. */
function crashShapes(timeline, x, middle) {
  const points = Array.from(
    { length: timeline.lines.length * 2 + 1 },
    (_, step) => `${x + (step % 2 ? 5 : -5)} ${HEAD - 6 + (step * ROW) / 2}`,
  );
  const outcomes = survivors(timeline).map(([className, words], row) =>
    svg("text", { x: x + 14, y: middle(row) + 4, class: className || "small" }, words),
  );
  return [
    svg("polyline", { points: points.join(" "), class: "crash-line" }),
    eventShape("crash", x, 15),
    svg("text", { x: x + 14, y: 19, class: "crash" }, "power fails"),
    ...outcomes,
  ];
}

/** The states of all rows after each event. */
function statesAfter({ lines, events }) {
  let state = lines.map((line) => line.state);
  return events.map((event) => {
    state = [...state];
    for (const [row, changed] of event.states ?? []) state[row] = changed;
    return state;
  });
}

/** The picture. `pressed(index)` is told of a press on an event; `point(index)` shows where a step is. */
function timelinePicture(timeline, pressed) {
  const { lines, events } = timeline;
  const crash = events.findIndex((event) => event.kind === "crash");
  const column = events.length > 16 ? 36 : 52;
  const height = HEAD + ROW * lines.length + FOOT;
  const middle = (row) => HEAD + ROW * row + ROW / 2;
  // Where the column of an event begins: what survived stands right of the crash.
  const left = (index) => 14 + column * index + (crash >= 0 && index > crash ? AFTER : 0);
  const center = (index) => left(index) + column / 2;
  const width = left(events.length) + 14;
  const threads = new Set(events.map((event) => event.thread)).size;
  const after = statesAfter(timeline);

  const shapes = (event, x) => {
    if (event.kind === "crash") return crashShapes(timeline, x, middle);
    if (["output", "file", "gap"].includes(event.kind)) return [eventShape(event.kind, x, 15)];
    if (["fence", "sync"].includes(event.kind)) {
      const line = svg("line", { x1: x, x2: x, y1: HEAD - 12, y2: height - FOOT, class: "fence-line" });
      return [line, eventShape(event.kind, x, 15)];
    }
    return (event.lines ?? []).map((row) => {
      const outcomes = outcomesIn(timeline, event, row);
      return eventShape(event.kind, x, middle(row), outcomes.includes("missing") ? "missing" : outcomes[0]);
    });
  };
  const groups = events.map((event, index) => {
    const x = center(index);
    const from = x + (event.kind === "crash" ? AFTER : 0);
    const end = index + 1 < events.length ? center(index + 1) : width - 6;
    const bars = lines.flatMap((_, row) => stateBar(after[index][row], from, middle(row), end - from));
    const foot = threads > 1 ? `${index + 1}·T${event.thread}` : String(index + 1);
    return svg(
      "g",
      { class: "event", onclick: () => pressed(index) },
      svg("title", {}, stepWords(timeline, event)),
      svg("rect", { x: left(index), y: 0, width: column, height, fill: "transparent" }),
      svg("g", { class: crash >= 0 && index >= crash ? "beyond" : null }, ...bars),
      ...shapes(event, x),
      svg("text", { x, y: height - 6, "text-anchor": "middle", class: "small" }, foot),
    );
  });
  const start = lines.flatMap((line, row) => stateBar(line.state, 4, middle(row), center(0) - 4));
  const rules = lines.map((_, row) =>
    svg("line", { x1: 0, x2: width, y1: HEAD + ROW * (row + 1), y2: HEAD + ROW * (row + 1), class: "row" }),
  );
  const cursor = svg("rect", { y: 1, height: height - 2, rx: 4, class: "cursor" });
  const label = `Timeline of ${plural(lines.length, "cache line")} and ${plural(events.length, "event")}`;
  const picture = svg(
    "svg",
    { width, height, class: "timeline", role: "img", "aria-label": `${label}; the steps below say it in words` },
    ...rules,
    ...start,
    ...groups,
    cursor,
  );
  const view = scrolling("Timeline of cache lines", picture);
  const point = (index) => {
    const more = index === crash ? AFTER : 0;
    groups.forEach((group, other) => group.classList.toggle("future", other > index));
    cursor.setAttribute("x", left(index) + 1);
    cursor.setAttribute("width", column - 2 + more);
    const [from, to] = [left(index) - column, left(index) + 2 * column + more];
    if (from < view.scrollLeft) view.scrollLeft = from;
    else if (to > view.scrollLeft + view.clientWidth) view.scrollLeft = to - view.clientWidth;
  };
  return { names: rowNames(lines, height, middle, rules), view, point };
}

/** Left of what scrolls. */
function rowNames(lines, height, middle, rules) {
  const files = new Set(lines.map((line) => line.file)).size;
  const names = lines.map((line) => (files > 1 ? `${lastPart(page.pm_files[line.file])} ` : "") + hex(line.offset));
  const width = Math.min(24 + Math.max(9, ...names.map((name) => name.length)) * 7.4, 200);
  return svg(
    "svg",
    { width, height, "aria-hidden": "true", class: "timeline names" },
    svg("text", { x: 12, y: 19, class: "small" }, "cache line"),
    ...rules.map((rule) => rule.cloneNode()),
    ...names.map((name, row) => svg("text", { x: 12, y: middle(row) + 4, class: "mono" }, name)),
  );
}
