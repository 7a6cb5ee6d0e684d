// The persistence graph of an update behaviour: what must persist before what. Layers by longest path, edges that skip layers
// go through bends, a few sweeps of barycentres against crossings (Sugiyama's method at its simplest).

const NODE = { width: 190, height: 46 };
const SWEEPS = 6;

/** Layers of vertices {node?, from, to}; a vertex without node is a bend. Edges only go from a layer to the next. */
function layered(count, edges) {
  const rank = Array(count).fill(0);
  // Edges follow the order of execution, so one pass in that order is enough.
  for (const [from, to] of [...edges].sort((a, b) => a[0] - b[0])) rank[to] = Math.max(rank[to], rank[from] + 1);
  const layers = Array.from({ length: Math.max(0, ...rank) + 1 }, () => []);
  const vertices = rank.map((layer, node) => {
    const vertex = { node, layer, before: [], after: [] };
    layers[layer].push(vertex);
    return vertex;
  });
  const link = (from, to) => {
    from.after.push(to);
    to.before.push(from);
  };
  const paths = edges.map(([from, to]) => {
    const path = [vertices[from]];
    for (let layer = rank[from] + 1; layer < rank[to]; layer++) {
      const bend = { layer, before: [], after: [] };
      layers[layer].push(bend);
      link(path.at(-1), bend);
      path.push(bend);
    }
    link(path.at(-1), vertices[to]);
    return [...path, vertices[to]];
  });
  const number = (layer) => layer.forEach((vertex, place) => (vertex.place = place));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const side = sweep % 2 ? "after" : "before";
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const weight = (vertex) =>
        vertex[side].length
          ? vertex[side].reduce((sum, other) => sum + other.place, 0) / vertex[side].length
          : vertex.place;
      const weights = new Map(layer.map((vertex) => [vertex, weight(vertex)]));
      layer.sort((a, b) => weights.get(a) - weights.get(b) || a.place - b.place);
      number(layer);
    }
  }
  return { layers, vertices, paths };
}

function graphFigure(graph, order) {
  const { layers, vertices, paths } = layered(graph.nodes.length, graph.edges);
  const across = layers.length <= 4;
  const [along, beside] = across ? [NODE.width + 56, NODE.height + 20] : [NODE.height + 40, NODE.width + 20];
  const most = Math.max(...layers.map((layer) => layer.length));
  for (const layer of layers) {
    for (const vertex of layer) {
      const [a, b] = [vertex.layer * along, (vertex.place + (most - layer.length) / 2) * beside];
      [vertex.x, vertex.y] = across ? [a + 44, b + 10] : [b + 10, a + 10];
    }
  }
  const width = (across ? (layers.length - 1) * along : (most - 1) * beside) + NODE.width + (across ? 54 : 50);
  const height = (across ? (most - 1) * beside : (layers.length - 1) * along) + NODE.height + 20;
  const ends = (vertex) => {
    const [x, y] = [vertex.x + NODE.width / 2, vertex.y + NODE.height / 2];
    const inner = vertex.node === undefined ? 0 : 1;
    return across
      ? { in: [x - (NODE.width / 2) * inner - 2 * inner, y], out: [x + (NODE.width / 2) * inner, y] }
      : { in: [x, y - (NODE.height / 2) * inner - 2 * inner], out: [x, y + (NODE.height / 2) * inner] };
  };
  const curve = (path) =>
    path
      .slice(1)
      .map((vertex, index) => {
        const [[x1, y1], [x2, y2]] = [ends(path[index]).out, ends(vertex).in];
        const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
        const bend = across ? `${mx} ${y1} ${mx} ${y2}` : `${x1} ${my} ${x2} ${my}`;
        return `${index ? "L" : "M"}${x1} ${y1}C${bend} ${x2} ${y2}`;
      })
      .join("");
  const arrow = newId("arrow");
  const markers = ["", "wanted"].map((name) =>
    svg(
      "marker",
      {
        id: arrow + name,
        class: name,
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 9,
        markerHeight: 9,
        markerUnits: "userSpaceOnUse",
        orient: "auto",
      },
      svg("path", { d: "M0 0 8 4 0 8Z" }),
    ),
  );
  const edges = paths.map((path) => svg("path", { d: curve(path), class: "edge", "marker-end": `url(#${arrow})` }));
  const at = (id, outcomes) =>
    graph.nodes.findIndex(
      (node) => outcomes.includes(node.outcome) && position(page.frames[node.frame]) === position(page.frames[id]),
    );
  const wanted = order
    .map(([before, after]) => [at(before, ["missing", "later"]), at(after, ["persisted"])])
    .filter(([before, after]) => before >= 0 && after >= 0 && before !== after);
  const missing = wanted.map(([before, after]) =>
    svg("path", {
      d: wantedCurve(vertices[before], vertices[after], across),
      class: "edge wanted",
      "marker-end": `url(#${arrow}wanted)`,
    }),
  );
  const nodes = graph.nodes.map((node, index) => {
    const { x, y } = vertices[index];
    const frame = page.frames[node.frame];
    const sign = { missing: "✗ ", persisted: "✓ ", certain: "✓ " }[node.outcome] ?? "";
    return svg(
      "g",
      { class: `node ${node.outcome ?? ""}`, transform: `translate(${x} ${y})` },
      svg("title", {}, `${nodeName(graph, node)}, ${placeOf(frame)}, ${range(node.pm)}`),
      svg("rect", { width: NODE.width, height: NODE.height, rx: 5 }),
      svg("text", { x: 10, y: 19, class: "strong" }, sign + cut(nodeName(graph, node), sign ? 22 : 24)),
      svg("text", { x: 10, y: 36, class: "small" }, cut(nodePlace(graph, node), 29)),
    );
  });
  const picture = svg(
    "svg",
    {
      width,
      height: height + (wanted.length && across ? 24 : 0),
      class: "graph",
      role: "img",
      "aria-label": "Persistence graph; its text is below",
    },
    svg("defs", {}, ...markers),
    ...edges,
    ...missing,
    ...nodes,
  );
  const told = (from, to, words) =>
    h(
      "li",
      {},
      `${nodeName(graph, graph.nodes[from])} (${position(page.frames[graph.nodes[from].frame])}) ${words} ${nodeName(graph, graph.nodes[to])} (${position(page.frames[graph.nodes[to].frame])})`,
    );
  const list = [
    ...graph.edges.map(([from, to]) => told(from, to, "persists before")),
    ...wanted.map(([from, to]) => told(from, to, "has to persist before, and does not,")),
  ];
  const of = graph.types
    .filter(Boolean)
    .map((type) => `\`${type}\``)
    .join(" and ");
  const like = graph.represents > 1 ? ` ${number(graph.represents)} updates of this run are like it.` : "";
  return h(
    "figure",
    { class: "picture" },
    h(
      "figcaption",
      { class: "caption" },
      ...withCode(
        `An arrow means: persists before, whatever happens. Two stores without a path between them can persist in any order.${of ? ` The update is one of ${of}.` : ""}${like}`,
      ),
      wanted.length ? " The dashed arrow is the order that recovery relies on and nothing enforces." : "",
    ),
    scrolling("Persistence graph", picture),
    h(
      "details",
      { class: "as-text" },
      h("summary", {}, "The graph as text"),
      list.length ? h("ul", { class: "notes" }, ...list) : h("p", {}, "No store has to persist before another."),
    ),
  );
}

/** Around the nodes between: left of them, below or right. */
function wantedCurve(from, to, across) {
  const [middle, center] = [NODE.height / 2, NODE.width / 2];
  if (across && from.layer === to.layer) {
    return `M${from.x} ${from.y + middle}C${from.x - 46} ${from.y + middle} ${to.x - 46} ${to.y + middle} ${to.x - 2} ${to.y + middle}`;
  }
  if (across || from.layer === to.layer) {
    const low = Math.max(from.y, to.y) + NODE.height + 34;
    return `M${from.x + center} ${from.y + NODE.height}C${from.x + center} ${low} ${to.x + center} ${low} ${to.x + center} ${to.y + NODE.height + 2}`;
  }
  const far = Math.max(from.x, to.x) + NODE.width + 44;
  return `M${from.x + NODE.width} ${from.y + middle}C${far} ${from.y + middle} ${far} ${to.y + middle} ${to.x + NODE.width + 2} ${to.y + middle}`;
}

const nodeName = (graph, node) => (graph.types.length > 1 ? `${graph.types[node.of]}.${node.field}` : node.field);
/** Where, and which bytes; the place only if it is not the name already. */
function nodePlace(graph, node) {
  const place = position(page.frames[node.frame]);
  const at = `${hex(node.pm.offset)}`;
  return node.field === place ? `${plural(node.pm.length, "byte")} at ${at}` : `${place} · ${at}`;
}
const cut = (words, length) => (words.length > length ? `…${words.slice(words.length - length + 1)}` : words);
