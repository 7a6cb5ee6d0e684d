// A timeline that is gone through step by step: by buttons, by a slider, by the arrow keys, by a press on an event.

/** `follow(file, line)` is told the source line of each step. `begin` shows the crash, once the figure is on the page. */
function timelineFigure(timeline, follow) {
  const { lines, events } = timeline;
  const crash = events.findIndex((event) => event.kind === "crash");
  const last = events.length - 1;
  const after = statesAfter(timeline);
  const outcomes = survivors(timeline);
  let at = 0;

  const { names, view, point } = timelinePicture(timeline, (index) => show(index));
  const button = (label, sign, target) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: () => show(target()) }, sign);
  const back = [button("First step", "⇤", () => 0), button("Previous step", "←", () => at - 1)];
  const forth = [button("Next step", "→", () => at + 1), button("Last step", "⇥", () => last)];
  const toCrash = crash >= 0 ? h("button", { type: "button", onclick: () => show(crash) }, "Crash") : null;
  const slider = h("input", { type: "range", min: 1, max: events.length, "aria-label": "Step" });
  slider.addEventListener("input", () => show(slider.value - 1));
  const count = h("span", { class: "count" });
  const said = h("p", { class: "said", role: "status", "aria-live": "polite" });
  const now = h("ul", { class: "now-states", "aria-label": "Cache lines after this step" });

  function show(index) {
    at = Math.min(Math.max(index, 0), last);
    const event = events[at];
    const frame = page.frames[event.frame];
    point(at);
    slider.value = at + 1;
    count.textContent = `Step ${at + 1} of ${events.length}`;
    slider.setAttribute("aria-valuetext", `${count.textContent}: ${EVENTS[event.kind]}`);
    const code = statement(frame);
    said.replaceChildren(stepWords(timeline, event), code ? h("code", { class: "statement" }, code) : "");
    now.replaceChildren(
      ...lines.map((line, row) => {
        const [className, words] = at === crash && outcomes[row][0] ? outcomes[row] : [after[at][row], after[at][row]];
        return h("li", { class: className }, h("span", { class: "mono" }, hex(line.offset)), ` ${words}`);
      }),
    );
    // Not `disabled`: that would take the focus away from who steps to the end.
    for (const one of back) one.setAttribute("aria-disabled", at === 0);
    for (const one of forth) one.setAttribute("aria-disabled", at === last);
    follow?.(frame.file, frame.line);
  }

  const moves = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => last };
  const onkeydown = (key) => {
    if (!moves[key.key] || key.target === slider || key.altKey || key.ctrlKey || key.metaKey) return;
    key.preventDefault();
    show(moves[key.key]());
  };
  const label = "Timeline of cache lines, step by step; the arrow keys go from step to step";
  const figure = h(
    "figure",
    { class: "picture", role: "group", "aria-label": label, onkeydown },
    legend(timeline),
    h("div", { class: "rows" }, names, view),
    h("div", { class: "stepper" }, ...back, ...forth, toCrash, slider, count),
    said,
    now,
  );
  return { figure, begin: () => show(crash >= 0 ? crash : last) };
}
