// The steps of a timeline in words, for everybody: the picture is a help, not the only way to read it.

const LINE = 64;
const EVENTS = {
  store: "Store",
  "nt-store": "Non-temporal store",
  flush: "Flush",
  "flush-now": "Flush (clflush)",
  fence: "Fence",
  sync: "Sync",
  write: "Write to the file",
  file: "Change of the file",
  gap: "Events that are left out",
  output: "Output",
  crash: "Power fails",
};
const OUTCOMES = {
  certain: "It was durable when power failed.",
  persisted: "Nothing guaranteed it, but in this crash it had persisted.",
  missing: "In this crash it is lost.",
};

/** What became of what an event stored in a row: one outcome, or several if it is torn within the row. */
function outcomesIn(timeline, event, row) {
  if (!event.lines?.includes(row)) return [];
  if (!event.pieces?.length) return event.outcome ? [event.outcome] : [];
  const start = timeline.lines[row].offset;
  const within = event.pieces.filter(([offset, length]) => offset < start + LINE && offset + length > start);
  return within.map(([, , outcome]) => outcome);
}

/** What survives of each row: "survived", "lost", "in part", or nothing was at stake. */
function survivors(timeline) {
  return timeline.lines.map((_, row) => {
    const all = timeline.events.flatMap((event) => outcomesIn(timeline, event, row));
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
  const place = placeOf(page.frames[event.frame]);
  const offsets = (rows) => rows.map((row) => hex(timeline.lines[row].offset)).join(", ");
  const named = (rows) => `${rows.length === 1 ? "Line" : "Lines"} ${offsets(rows)}`;
  if (event.kind === "crash") {
    const of = (wanted) => survivors(timeline).flatMap(([outcome], row) => (outcome === wanted ? [row] : []));
    const told = (rows, words) => (rows.length ? [`${named(rows)}: ${words}.`] : []);
    return [
      `Power fails here${place ? `, after ${place}` : ""}.`,
      ...told(of("lost"), "not all that was stored is there afterwards"),
      ...told(of("survived"), "what was stored survives"),
    ].join(" ");
  }
  const rows = event.lines ?? [];
  let what = event.kind === "gap" ? `${plural(event.omitted ?? 0, "event")} not shown` : EVENTS[event.kind];
  if (event.length != null && rows.length) {
    const file = lastPart(page.pm_files[timeline.lines[rows[0]].file]);
    what += ` of ${plural(event.length, "byte")} at ${hex(event.offset)} of ${file}`;
  } else if (event.kind.startsWith("flush") && rows.length) {
    what += ` of line ${offsets(rows)}`;
  }
  if (event.kind === "output") what += ` “${event.data?.trim() ?? ""}”`;
  if (event.kind === "file" && event.data) what += ` (${event.data})`;
  const words = [`${what}${place ? ` by ${place}` : ""}.`];
  for (const state of new Set((event.states ?? []).map(([, state]) => state))) {
    const changed = event.states.flatMap(([row, other]) => (other === state ? [row] : []));
    words.push(`${named(changed)} ${changed.length === 1 ? "is" : "are"} now ${state}.`);
  }
  if (OUTCOMES[event.outcome]) words.push(OUTCOMES[event.outcome]);
  if (event.pieces?.length) {
    const ended = { missing: "lost", later: "still to come" };
    const piece = ([offset, length, outcome]) =>
      `${plural(length, "byte")} at ${hex(offset)} ${ended[outcome] ?? "survived"}`;
    words.push(`It is torn: ${event.pieces.map(piece).join(", ")}.`);
  }
  return words.join(" ");
}
