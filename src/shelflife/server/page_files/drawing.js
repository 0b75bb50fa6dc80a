// Drawing what points to what: tables tied by rules, and rows around one.

import { draw } from "./elements.js";

const WIDTH = 205, HEIGHT = 46, GAP_X = 160, GAP_Y = 26, EDGE = 16, BEND = 70;
let drawings = 0;

// `nodes` are {id, title, under}; `edges` are {from, to, label}. `chosen` is the id of one whose downstream is shown.
export function graph(label, nodes, edges, chosen, choose) {
  const below = chosen ? reached(chosen, edges) : new Set();
  const places = placed(nodes, edges);
  const across = Math.max(...[...places.values()].map(([x]) => x)) + WIDTH + EDGE + (edges.some((edge) => isBeside(edge, places)) ? BEND + 30 : 0);
  const down = Math.max(...[...places.values()].map(([, y]) => y)) + HEIGHT + EDGE;
  const isBelow = (edge) => (edge.from === chosen || below.has(edge.from)) && below.has(edge.to);
  const head = `head-${++drawings}`; // names are of the whole document, and there may be two drawings in it
  const lines = edges.map((edge) => line(edge, places, isBelow(edge), head));
  return draw("svg", { viewBox: `0 0 ${across} ${down}`, role: "group", "aria-label": label },
    draw("defs", {}, draw("marker", { id: head, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
      draw("path", { d: "M0 0 8 4 0 8z" }))),
    lines.map((one) => one[0]), lines.map((one) => one[1]), // names over all arrows, so that none is crossed
    nodes.map((node) => box(node, places.get(node.id), node.id === chosen ? "chosen" : below.has(node.id) ? "below" : "", choose)));
}

export function reached(from, edges) {
  const found = new Set();
  const ahead = [from];
  while (ahead.length) {
    const at = ahead.pop();
    for (const edge of edges) {
      if (edge.from === at && edge.to !== from && !found.has(edge.to)) {
        found.add(edge.to);
        ahead.push(edge.to);
      }
    }
  }
  return found;
}

// Columns by the longest way from a node to which nothing points; what goes in a circle stays where it was met first.
function placed(nodes, edges) {
  const columns = new Map();
  const visit = (id, column, path) => {
    if (path.has(id) || (columns.get(id) ?? -1) >= column) return;
    columns.set(id, column);
    for (const edge of edges) if (edge.from === id) visit(edge.to, column + 1, new Set(path).add(id));
  };
  const isTarget = new Set(edges.filter((edge) => edge.from !== edge.to).map((edge) => edge.to));
  for (const { id } of nodes) if (!isTarget.has(id)) visit(id, 0, new Set());
  for (const { id } of nodes) if (!columns.has(id)) visit(id, 0, new Set());
  const heights = new Map();
  return new Map(nodes.map(({ id }) => {
    const column = columns.get(id);
    const at = heights.get(column) ?? 0;
    heights.set(column, at + 1);
    return [id, [EDGE + column * (WIDTH + GAP_X), EDGE + at * (HEIGHT + GAP_Y)]];
  }));
}

function box(node, [x, y], mark, choose) {
  const chosen = () => choose(node.id);
  const onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      chosen();
    }
  };
  const states = { chosen: ", chosen", below: ", downstream" };
  return draw("g", {
    class: mark, role: "button", tabindex: 0, "aria-pressed": String(mark === "chosen"),
    "aria-label": `${node.title}, ${node.under}${states[mark] ?? ""}`, transform: `translate(${x} ${y})`, onclick: chosen, onkeydown,
  },
  draw("title", {}, node.title),
  draw("rect", { width: WIDTH, height: HEIGHT, rx: 7 }),
  draw("text", { x: 12, y: 20 }, short(node.title, 24)),
  draw("text", { x: 12, y: 37, class: "small" }, short(node.under, 30)));
}

const isBeside = (edge, places) => places.get(edge.to)[0] === places.get(edge.from)[0];

function line(edge, places, isBelow, head) {
  const [fromX, fromY] = places.get(edge.from), [toX, toY] = places.get(edge.to);
  const isBack = toX < fromX, isLoop = isBeside(edge, places);
  const start = [isBack ? fromX : fromX + WIDTH, fromY + HEIGHT / 2 + (isBack ? 12 : 0)];
  const end = [isBack || isLoop ? toX + WIDTH : toX, toY + HEIGHT / 2 + (isBack || isLoop ? 12 : 0)];
  const bend = isLoop ? BEND : (end[0] - start[0]) / 2;
  const first = [start[0] + bend, start[1]], second = [end[0] + (isLoop ? bend : -bend), end[1]];
  const curve = `M${start}C${first} ${second} ${end}`;
  // Nearer to where the arrow begins, so that those which cross do not cover each other's names.
  const [x, y] = [0, 1].map((axis) => along(0.36, start[axis], first[axis], second[axis], end[axis]));
  return [draw("path", { d: curve, class: isBelow ? "below" : "", "marker-end": `url(#${head})` }),
    draw("text", { x, y: y + 4, class: "small label", "text-anchor": "middle" }, short(edge.label, 22))];
}

const along = (t, a, b, c, d) => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t ** 2 * c + t ** 3 * d;

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
