// What there is to say of one finding.

function details(entry, detail) {
  const { first, run, findings } = entry;
  const { crash } = first;
  const kind = page.kinds[entry.kind];
  const { figures, follow } = sources(first.marks ?? []);
  const unreduced = crash?.unreduced;
  const explanation = h("div", {}, unreduced ? null : h("p", { class: "prose" }, ...withCode(sentence(kind.why))));
  const help = first.help != null ? text(first.help) : kind.help;
  const facts = [
    first.pm ? `It is about ${range(first.pm)}.` : null,
    entry.count > 1 && !crash ? `It happened ${times(entry.count)}.` : null,
    first.durable_by && !first.marks?.some((mark) => mark.roles.includes("fence") || mark.roles.includes("end"))
      ? sentence(text(first.durable_by.label))
      : null,
    ...(first.notes ?? []).map((note) => sentence(text(note))),
    ...(crash?.left_out ?? []).map(sentence),
    crash
      ? unreduced
        ? `Failing states that were left: ${number(crash.states)}. The test ended before the crash could be reduced: all uncertain stores are named, and the kind is a guess.`
        : `${plural(crash.states, "tested state fails", "tested states fail")} for this reason.`
      : null,
    crash?.depth > 1 ? "It is a crash of the recovery after a crash." : null,
    entry.known ? "The baseline has it." : null,
  ].filter(Boolean);

  detail.append(explanation, ...(figures.length ? [part("In the source", ...figures)] : []));
  if (crash?.timeline) {
    const box = h("div", {});
    detail.append(part("What the cache lines went through", box));
    const { figure, begin } = timelineFigure(atPlace(crash), follow);
    const { omitted, more_lines: more } = crash.timeline;
    const hidden = [
      omitted ? `${plural(omitted, "earlier event")} of these lines` : null,
      more ? plural(more, "more cache line") : null,
    ].filter(Boolean);
    if (hidden.length) box.append(h("p", { class: "quiet above-picture" }, `Not shown: ${hidden.join(", ")}.`));
    box.append(figure);
    begin();
  }
  if (crash)
    detail.append(
      part("What survived, and what did not", survived(crash)),
      part("What recovery made of it", recovery(crash.recovery)),
    );
  if (!unreduced && help)
    detail.append(part("What to do", h("p", { class: "prose help" }, ...withCode(sentence(help)))));
  if (first.repaired && run.patch) detail.append(part("Suggested patch", diff(run.patch, entry.path)));
  if (crash?.replay)
    detail.append(part("To run recovery on this state again", h("pre", { class: "output" }, crash.replay)));
  if (crash?.graph?.nodes.length)
    detail.append(part("What has to persist before what", graphFigure(crash.graph, first.order ?? [])));
  detail.append(
    h(
      "div",
      { class: "split" },
      callPaths(findings),
      facts.length
        ? part(
            "Notes",
            h("ul", { class: "notes" }, ...facts.map((fact) => h("li", { class: "prose" }, ...withCode(fact)))),
          )
        : null,
      ...(first.related ?? []).map((related) =>
        part(sentence(text(related.message)).replace(/\.$/, ""), frames(page.stacks[related.stack] ?? [])),
      ),
    ),
  );
}

const PATHS_SHOWN = 3;

/** What differs only in what is not shown is one path. */
function callPaths(findings) {
  const lines = (finding) => (page.stacks[finding.stack] ?? []).map((id) => placeOf(page.frames[id])).join("\n");
  const paths = [...Map.groupBy(findings, lines).values()];
  if (paths.length === 1) return part("Call path", frames(page.stacks[findings[0].stack] ?? []));
  const path = (same, index) => {
    const count = same.reduce((sum, finding) => sum + finding.count, 0);
    return h(
      "div",
      { class: "path" },
      h("p", { class: "quiet" }, `${index + 1} of ${paths.length}, ${times(count)}`),
      frames(page.stacks[same[0].stack] ?? []),
    );
  };
  const all = paths.map(path);
  const rest = all.slice(PATHS_SHOWN);
  return part(
    "Call paths",
    ...all.slice(0, PATHS_SHOWN),
    rest.length ? h("details", {}, h("summary", {}, plural(rest.length, "more call path")), ...rest) : null,
  );
}

function frames(stack) {
  if (!stack.length) return h("p", { class: "quiet" }, "Unknown.");
  return h(
    "ol",
    { class: "frames" },
    ...stack.map((id) => {
      const frame = page.frames[id];
      return h(
        "li",
        {},
        h("code", {}, frame.function ?? `0x${frame.address}`),
        h("span", { class: "quiet" }, position(frame) + (frame.inlined ? " (inlined)" : "")),
      );
    }),
  );
}

/** The timeline, in which the crash is at the place after which power failed. */
function atPlace({ timeline, after }) {
  const events = timeline.events.map((event) => (event.kind === "crash" ? { ...event, frame: after } : event));
  return { ...timeline, events };
}

/** Stores of one statement are one item. */
function survived(crash) {
  const stored = (one) => {
    const data = one.data && one.data.length <= 32 ? `: ${one.data.replace(/(..)(?=.)/g, "$1 ")}` : "";
    return [one.operation ? null : range(one.pm) + data, one.executed ? null : "still to be stored when power failed"];
  };
  const item = (stores) => {
    const [{ operation, frame: id, pm }] = stores;
    const frame = page.frames[id];
    const code = statement(frame);
    const title = operation ?? (code ? h("code", {}, code) : range(pm));
    const small = (words) => (words ? h("small", {}, words) : null);
    const ranges = stores.map((one) => stored(one).filter(Boolean).join(", "));
    return h(
      "li",
      {},
      title,
      small(placeOf(frame)),
      ...ranges.slice(0, 8).map(small),
      ranges.length > 8 ? small(`and ${plural(ranges.length - 8, "more store")}`) : null,
    );
  };
  const grouped = (stores) => [...Map.groupBy(stores, (one) => `${one.frame} ${one.operation ?? ""}`).values()];
  const list = (sign, className, title, stores, none) =>
    h(
      "div",
      {},
      h("h5", { class: className }, `${sign} ${title}`),
      stores.length ? h("ul", {}, ...grouped(stores).map(item)) : h("p", { class: "quiet" }, none),
    );
  return h(
    "div",
    { class: "outcomes" },
    list("✓", "survived", "Had persisted", crash.persisted, "Nothing of what matters here."),
    list(
      "✗",
      "lost",
      "Had not persisted",
      crash.missing,
      "Nothing: what was stored is there, and the program was in the middle of it.",
    ),
  );
}

function recovery({ ended, stdout, stderr }) {
  const output = (name, content) =>
    content
      ? [h("p", { class: "quiet" }, name), h("pre", { class: "output", tabindex: "0", "aria-label": name }, content)]
      : [];
  return h(
    "div",
    {},
    h("p", { class: "prose" }, ...withCode(sentence(ended)), stdout || stderr ? "" : " It printed nothing."),
    ...output("stderr", stderr),
    ...output("stdout", stdout),
  );
}
