// Of a run as a whole: states tested and bugs found over time, and who causes the traffic to persistent memory.

/** Draws again when the width changes: text keeps its size. */
function responsive(draw) {
  const box = h("div", {});
  let drawn = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.round(contentRect.width);
    if (width && width !== drawn) {
      drawn = width;
      box.replaceChildren(draw(width));
    }
  }).observe(box);
  return box;
}

/** 0, 20, 40 … up to `most`: round steps, about `count` of them. */
function ticks(most, count) {
  if (most <= 0) return [0, 1];
  const raw = most / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}

function progressFigure(run) {
  const samples = run.progress;
  const end = samples.at(-1);
  const words = `${plural(end.tested, "state")} tested in ${end.seconds.toFixed(1)} s; ${number(end.failed)} failed, with ${plural(end.findings, "cause")}.`;
  const draw = (width) => {
    const [left, right, upper, lower, gap] = [52, 14, 150, 76, 34];
    const height = 22 + upper + gap + lower + 30;
    const seconds = ticks(end.seconds, width > 600 ? 8 : 4);
    const x = (value) => left + (value / seconds.at(-1)) * (width - left - right);
    const panel = (top, size, values, title, shapes) => {
      const marks = ticks(Math.max(1, ...values), size > 100 ? 4 : 2).filter((mark) => mark === Math.round(mark));
      const y = (value) => top + size - (value / marks.at(-1)) * size;
      return [
        svg("text", { x: left, y: top - 9, class: "strong" }, title),
        ...marks.map((mark) =>
          svg("line", { x1: left, x2: width - right, y1: y(mark), y2: y(mark), class: mark ? "grid" : "axis" }),
        ),
        ...marks.map((mark) =>
          svg("text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end", class: "small" }, number(mark)),
        ),
        ...shapes(y),
      ];
    };
    const line = (y, value) =>
      samples
        .map((sample, index) => `${index ? "L" : "M"}${x(sample.seconds).toFixed(1)} ${y(value(sample)).toFixed(1)}`)
        .join("");
    const steps = (y, value) =>
      samples
        .map((sample, index) =>
          index
            ? `H${x(sample.seconds).toFixed(1)}V${y(value(sample)).toFixed(1)}`
            : `M${x(sample.seconds)} ${y(value(sample))}`,
        )
        .join("");
    const found = samples.filter((sample, index) => sample.findings > (samples[index - 1]?.findings ?? 0));
    const top = 22;
    return svg(
      "svg",
      { width, height, class: "chart", role: "img", "aria-label": `States tested and bugs found over time. ${words}` },
      ...panel(
        top,
        upper,
        samples.map((sample) => sample.tested),
        "States tested",
        (y) => [
          svg("path", {
            d: `${line(y, (sample) => sample.tested)}L${x(end.seconds)} ${y(0)}L${x(samples[0].seconds)} ${y(0)}Z`,
            class: "area",
          }),
          svg("path", { d: line(y, (sample) => sample.tested), class: "tested" }),
        ],
      ),
      ...panel(
        top + upper + gap,
        lower,
        samples.map((sample) => sample.findings),
        "Bugs found (causes of failures)",
        (y) => [
          svg("path", { d: steps(y, (sample) => sample.findings), class: "found" }),
          ...found.map((sample) =>
            svg(
              "circle",
              { cx: x(sample.seconds), cy: y(sample.findings), r: 4, class: "found-dot" },
              svg(
                "title",
                {},
                `${plural(sample.findings, "bug")} after ${sample.seconds.toFixed(2)} s and ${plural(sample.tested, "state")}`,
              ),
            ),
          ),
        ],
      ),
      ...seconds.map((second) =>
        svg(
          "text",
          { x: x(second), y: height - 8, "text-anchor": "middle", class: "small" },
          `${+second.toPrecision(3)} s`,
        ),
      ),
    );
  };
  return h("figure", { class: "picture padded" }, responsive(draw), h("figcaption", { class: "quiet" }, words));
}

const COLUMNS = [
  ["Function", (row) => functionName(row).toLowerCase()],
  ["Stores", (row) => row.stores],
  ["Bytes", (row) => row.bytes],
  ["Flushes", (row) => row.flushes],
  ["redundant", (row) => row.redundant_flushes, "Redundant flushes"],
  ["Fences", (row) => row.fences],
  ["redundant", (row) => row.redundant_fences, "Redundant fences"],
];

const functionName = (row) =>
  row.function ?? (row.functions ? `${plural(row.functions, "other function")}` : "unknown");

/** On whose behalf: what flushes for others is where they pay. */
function callers(row) {
  if (!row.callers?.length) return null;
  const told = ({ frame, flushes, redundant_flushes: useless }) =>
    h("li", {}, `${placeOf(page.frames[frame])}: ${plural(flushes, "flush", "flushes")}, ${number(useless)} redundant`);
  return h("details", {}, h("summary", {}, "called from"), h("ul", { class: "notes" }, ...row.callers.map(told)));
}

function trafficTable(run) {
  const rows = [...run.traffic];
  const most = Math.max(1, ...rows.map((row) => row.flushes));
  const body = h("tbody");
  const bar = (row) => {
    const useless = (100 * row.redundant_flushes) / most;
    const useful = (100 * row.flushes) / most - useless;
    const words = row.flushes
      ? `${plural(row.flushes, "flush", "flushes")}, ${number(row.redundant_flushes)} of them redundant`
      : "no flushes";
    return svg(
      "svg",
      { viewBox: "0 0 100 14", preserveAspectRatio: "none", role: "img", "aria-label": words },
      svg("rect", { x: 0, y: 2, width: useful, height: 10, class: "useful" }),
      svg("rect", { x: useful, y: 2, width: useless, height: 10, class: "useless" }),
      useless ? svg("rect", { x: useful, y: 2, width: useless, height: 10, fill: "url(#pattern-useless)" }) : null,
    );
  };
  const fill = () =>
    body.replaceChildren(
      ...rows.map((row) => {
        const redundant = (count) => h("td", { class: count ? "redundant" : "quiet" }, number(count));
        return h(
          "tr",
          {},
          h(
            "th",
            { scope: "row" },
            row.function ? h("code", {}, row.function) : functionName(row),
            row.file != null ? h("span", { class: "quiet file" }, ` ${page.files[row.file].path}`) : "",
            callers(row),
          ),
          h("td", {}, number(row.stores)),
          h("td", {}, number(row.bytes)),
          h("td", {}, number(row.flushes)),
          redundant(row.redundant_flushes),
          h("td", {}, number(row.fences)),
          redundant(row.redundant_fences),
          h("td", { class: "bars" }, bar(row)),
        );
      }),
    );
  const heads = COLUMNS.map(([name, value, label], index) => {
    const sort = () => {
      const rising =
        heads[index].getAttribute("aria-sort") === "descending" ||
        (index === 0 && heads[index].getAttribute("aria-sort") !== "ascending");
      rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (rising ? 1 : -1));
      heads.forEach((head) => head.removeAttribute("aria-sort"));
      heads[index].setAttribute("aria-sort", rising ? "ascending" : "descending");
      fill();
    };
    return h(
      "th",
      { scope: "col" },
      h(
        "button",
        { type: "button", "aria-label": label ? `${label}, sort` : `${name}, sort`, onclick: sort },
        name,
        h("span", { class: "arrow", "aria-hidden": "true" }),
      ),
    );
  });
  fill();
  const sum = (value) => rows.reduce((total, row) => total + value(row), 0);
  const [flushes, wasted] = [sum((row) => row.flushes), sum((row) => row.redundant_flushes)];
  const share = flushes ? Math.round((100 * wasted) / flushes) : 0;
  const words = wasted
    ? `${number(wasted)} of ${plural(flushes, "flush", "flushes")} (${share} %) changed nothing about what survives a power failure.`
    : "No flush was redundant.";
  return [
    h("p", { class: "prose" }, words),
    scrolling(
      "Traffic by function",
      h(
        "table",
        { class: "traffic" },
        h("caption", { class: "unseen" }, "Stores, flushes and fences by function"),
        h(
          "thead",
          {},
          h("tr", {}, ...heads, h("th", { scope: "col", class: "bars" }, "Flushes, redundant ones hatched")),
        ),
        body,
      ),
    ),
  ];
}
