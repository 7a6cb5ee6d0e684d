// The data, and what every part of the page uses: elements, words, places. The other files follow in one module.

const page = JSON.parse(document.getElementById("crashproof-data").textContent);

/** An element. Strings become text nodes: nothing of the data is ever markup. */
function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

let ids = 0;
/** For `aria-labelledby` and the like. */
const newId = (what) => `${what}-${++ids}`;

const number = (value) => value.toLocaleString("en-US");
const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
const times = (count) => (count === 1 ? "once" : `${number(count)} times`);
const hex = (value) => `0x${value.toString(16)}`;
const lastPart = (path) => path.slice(path.lastIndexOf("/") + 1);
const text = (id) => page.texts[id];
const sentence = (words) =>
  words ? words[0].toUpperCase() + words.slice(1) + (/[.!?:…]$/.test(words) ? "" : ".") : "";

/** "8 bytes at offset 0x88 of pool.pm" */
function range(pm) {
  const file = lastPart(page.pm_files[pm.file]);
  return pm.length === 0 ? file : `${plural(pm.length, "byte")} at offset ${hex(pm.offset)} of ${file}`;
}

/** "src/list.c:17", or what is known instead. */
function position(frame) {
  if (frame.file != null) return page.files[frame.file].path + (frame.line ? `:${frame.line}` : "");
  if (frame.module != null) {
    const module = lastPart(page.modules[frame.module]);
    // Where in `memcpy` it happened interests nobody.
    return frame.function && module.startsWith("libc.so") ? module : `${module}+0x${frame.address}`;
  }
  return frame.address && frame.address !== "0" ? `0x${frame.address}` : "";
}

/** "insert, src/list.c:17" */
function placeOf(frame) {
  return [frame.function, position(frame)].filter(Boolean).join(", ");
}

/** A line of a source file, if the page has it. */
function sourceLine(file, line) {
  for (const { first, lines } of page.files[file]?.excerpts ?? []) {
    if (line >= first && line < first + lines.length) return lines[line - first];
  }
  return undefined;
}

/** The source line of a frame, without its indentation and its comments. */
function statement(frame) {
  const line = frame.file != null && frame.line ? sourceLine(frame.file, frame.line) : undefined;
  if (line === undefined) return undefined;
  const code = tokenized([line])[0].filter(([kind]) => kind !== "comment");
  return code
    .map(([, value]) => value)
    .join("")
    .trim();
}

/** Texts have code in backquotes. */
function withCode(words) {
  return words.split(/`([^`\n]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

/** Word, shape and colour: none of them alone. */
const SEVERITIES = {
  error: {
    order: 0,
    shape:
      "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0ZM4.5 3.4 8 6.9l3.5-3.5 1.1 1.1L9.1 8l3.5 3.5-1.1 1.1L8 9.1l-3.5 3.5-1.1-1.1L6.9 8 3.4 4.5Z",
  },
  warning: { order: 1, shape: "M8 0 16 15.5H0ZM7.2 5v5h1.6V5Zm0 6.4V13h1.6v-1.6Z" },
  note: { order: 2, shape: "M1 1h14v14H1Zm6.2 6v5h1.6V7Zm0-3v1.7h1.6V4Z" },
};

function severity(name, unseen = false) {
  const shape = svg(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: SEVERITIES[name].shape, "fill-rule": "evenodd" }),
  );
  return h("span", { class: `severity ${name}` }, shape, h("span", { class: unseen ? "unseen" : null }, name));
}

/** A part of a finding's details, with a heading. */
function part(title, ...content) {
  return h("div", { class: "part" }, h("h4", {}, title), ...content);
}

/** Something wide that scrolls by itself, also by keyboard. */
function scrolling(label, ...content) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...content);
}
