// Source excerpts: a tokenizer for C and C++ that is good enough to colour lines, and the marks of a finding in place.

const KEYWORDS = new Set(
  (
    "alignas alignof and asm auto break case catch class co_await co_return co_yield concept const consteval constexpr " +
    "constinit const_cast continue decltype default delete do dynamic_cast else enum explicit export extern false for " +
    "friend goto if inline mutable namespace new noexcept not nullptr operator or private protected public register " +
    "reinterpret_cast requires restrict return sizeof static static_assert static_cast struct switch template this " +
    "thread_local throw true try typedef typeid typename union using virtual volatile while NULL _Atomic _Static_assert"
  ).split(" "),
);
const TYPES = new Set(
  "void bool char short int long float double signed unsigned wchar_t PMEMobjpool PMEMoid PMEMmutex FILE".split(" "),
);
const TOKEN = new RegExp(
  [
    String.raw`(?<comment>\/\/.*|\/\*.*?(?:\*\/|$))`,
    String.raw`(?<string>(?:u8|[uUL])?"(?:\\.|[^"\\])*"?|(?:u8|[uUL])?'(?:\\.|[^'\\])*'?)`,
    String.raw`(?<number>\b(?:0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*(?:\.\d*)?(?:[eE][+-]?\d+)?)[uUlLfFzZ]*)`,
    String.raw`(?<word>[A-Za-z_]\w*)`,
  ].join("|"),
  "g",
);

/** The lines of an excerpt as lists of [class, text]; comments go on from line to line. */
function tokenized(lines) {
  // An excerpt may begin within a comment: then its end comes before any beginning.
  const end = lines.findIndex((line) => line.includes("*/"));
  let comment =
    end >= 0 &&
    !lines.slice(0, end).some((line) => line.includes("/*")) &&
    !(lines[end].includes("/*") && lines[end].indexOf("/*") < lines[end].indexOf("*/"));
  return lines.map((line) => {
    const tokens = [];
    let at = 0;
    if (comment) {
      const close = line.indexOf("*/");
      at = close < 0 ? line.length : close + 2;
      comment = close < 0;
      tokens.push(["comment", line.slice(0, at)]);
    } else {
      const directive = /^\s*#\s*\w*(?:\s*<[^>]*>)?/.exec(line);
      if (directive) {
        at = directive[0].length;
        tokens.push(["directive", directive[0]]);
      }
    }
    let tag = false;
    for (const match of line.slice(at).matchAll(TOKEN)) {
      const start = at + match.index;
      const before = tokens.reduce((sum, [, value]) => sum + value.length, 0);
      if (start > before) tokens.push(["", line.slice(before, start)]);
      const [value] = match;
      let kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
      if (kind === "word") {
        const type = TYPES.has(value) || value.endsWith("_t") || tag;
        tag = ["struct", "union", "enum", "class"].includes(value);
        kind = KEYWORDS.has(value) ? "keyword" : type ? "type" : "";
      }
      if (kind === "comment" && value.startsWith("/*")) comment = !value.endsWith("*/") || value.length < 4;
      tokens.push([kind, value]);
    }
    const done = tokens.reduce((sum, [, value]) => sum + value.length, 0);
    if (done < line.length) tokens.push(["", line.slice(done)]);
    return tokens;
  });
}

const tokenCache = new WeakMap();

/** The tokens of an excerpt; many findings share one. */
function tokensOf(excerpt) {
  if (!tokenCache.has(excerpt)) tokenCache.set(excerpt, tokenized(excerpt.lines));
  return tokenCache.get(excerpt);
}

/** The tokens as elements; what lies in [from, to) is within an element of class `span`. */
function coloured(tokens, marked, className) {
  const [from, to] = marked ?? [-1, -1];
  const outside = [[], []];
  const inside = [];
  let at = 0;
  for (const [kind, value] of tokens) {
    for (const [start, end, target] of [
      [0, from, outside[0]],
      [from, to, inside],
      [to, Infinity, outside[1]],
    ]) {
      const piece = value.slice(Math.max(0, start - at), Math.max(0, end - at));
      if (piece) target.push(kind ? h("span", { class: `t-${kind}` }, piece) : piece);
    }
    at += value.length;
  }
  return inside.length
    ? [...outside[0], h("span", { class: className }, ...inside), ...outside[1]]
    : [...outside[0], ...outside[1]];
}

const ROLES = {
  store: "store",
  flush: "flush",
  fence: "fence",
  end: "durable by",
  missing: "store, lost",
  persisted: "store, survived",
  later: "store, still to come",
  crash: "crash point",
  related: "see also",
};

const AROUND = 3;

/**
 * One figure a file with the lines around the marks. `follow(file, line)` of what is returned shows where a step of the
 * timeline is in the source.
 */
function sources(marks) {
  const shown = new Map();
  const figures = [...new Set(marks.map((mark) => mark.file))].map((file) => {
    const ofFile = marks.filter((mark) => mark.file === file);
    return sourceFigure(file, ofFile, ofFile.includes(marks[0]) ? marks[0] : undefined, shown);
  });
  let now;
  const follow = (file, line) => {
    now?.classList.remove("now");
    now = shown.get(`${file}:${line}`);
    now?.classList.add("now");
  };
  return { figures, follow };
}

function sourceFigure(file, marks, primary, shown) {
  const { path, excerpts = [], problem } = page.files[file];
  const caption = h("figcaption", {}, h("span", { class: "mono" }, path), problem ? ` – ${problem}` : "");
  const near = (line) => marks.some((mark) => Math.abs(mark.line - line) <= AROUND);
  const rows = [];
  let last = 0;
  for (const excerpt of excerpts) {
    const { first, lines } = excerpt;
    lines.forEach((_, index) => {
      const line = first + index;
      if (!near(line)) return;
      const tokens = tokensOf(excerpt);
      if (last && line > last + 1) rows.push(h("span", { class: "line gap" }, "⋯"));
      last = line;
      rows.push(
        ...sourceRow(
          line,
          tokens[index],
          marks.find((mark) => mark.line === line),
          primary,
        ),
      );
      shown.set(
        `${file}:${line}`,
        rows.findLast((row) => row.dataset.line),
      );
    });
  }
  const unread = marks.filter((mark) => sourceLine(file, mark.line) === undefined);
  rows.push(...unread.map((mark) => remark(mark, `${path}:${mark.line}: `)));
  return h(
    "figure",
    { class: "source" },
    caption,
    scrolling(`Source of ${path}`, h("pre", { class: "code" }, ...rows)),
  );
}

function sourceRow(line, tokens, mark, primary) {
  const className = mark ? `line marked${mark === primary ? " primary" : ""}` : "line";
  const code = h("code", {}, ...coloured(tokens, mark?.range, mark === primary ? "span" : "span context"));
  const row = h("span", { class: className, "data-line": line }, h("span", {}, String(line)), code);
  return mark ? [row, remark(mark, "", tokens)] : [row];
}

/** What there is to say of a line, below it and not left of what is marked in it. */
function remark(mark, before, tokens = []) {
  const start = tokens
    .map(([, value]) => value)
    .join("")
    .slice(0, mark.range?.[0] ?? 0);
  const column = [...start].reduce((at, letter) => (letter === "\t" ? at + 4 - (at % 4) : at + 1), 0);
  const roles = mark.roles.map((role) => h("span", { class: `role ${role}` }, ROLES[role]));
  return h(
    "span",
    { class: "line remark", style: `--column: ${Math.min(column, 24)}` },
    h("span", {}, ...roles, " ", before, ...withCode(text(mark.label))),
  );
}

/** A unified diff; of a finding only the part that is about its file, if there is one. */
function diff(patch, path) {
  const files = patch.diff.split(/^(?=--- )/m);
  const own = files.filter(
    (part) =>
      path &&
      part
        .split("\n", 1)[0]
        .trimEnd()
        .endsWith(`/${lastPart(path)}`),
  );
  const line = (content) => {
    const kind = /^(---|\+\+\+) /.test(content) ? "file" : ({ "+": "add", "-": "del", "@": "hunk" }[content[0]] ?? "");
    return h("span", { class: kind }, content || " ");
  };
  const lines = (own.length ? own : files).join("").trimEnd().split("\n").map(line);
  return h(
    "figure",
    { class: "source diff" },
    h(
      "figcaption",
      {},
      patch.verified ? "The patched program was built, run and checked again." : "Not checked by a second run.",
      ` It repairs ${plural(patch.findings.length, "finding")} of this report.`,
    ),
    scrolling("Suggested patch", h("pre", { class: "code" }, ...lines)),
  );
}
