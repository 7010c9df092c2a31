// The part of a drawing that is shown: equal siblings may be folded into one stack, and settled steps may be hidden. The
// places come from the server's drawing; empty space that this leaves is closed. Pure: graph.tsx shows it.
import type { Mark } from "./state.ts";
import { urgency } from "./state.ts";
import type { Graph, GraphNode } from "./types.ts";

/** Fewer equal siblings than this are not folded. */
export const fewestFolded = 41;

/** Space that stays between boxes where others were, in pixels: that of internal/graph. */
const columnGap = 64;
const nodeGap = 18;
/** Space around the bend of an edge, and around the drawing. */
const bendSpace = 6;
const margin = 24;

/** A box of the drawing: a step, or a stack of equal steps, which has the name of the first one. */
export interface Box extends GraphNode {
  /** The steps of a stack, as indexes of the whole drawing. */
  members?: readonly number[];
}

export interface Shown extends Graph {
  nodes: Box[];
  /** Of each step's name: its box, or that of its stack. Hidden steps have none. */
  boxOf: ReadonlyMap<string, number>;
}

/** Equal siblings: the same agent, action, parents and children. Each group is in the order of the drawing. */
export function siblings(graph: Graph): number[][] {
  if (graph.edgesLeftOut) return []; // not all parents and children are known
  const parents: number[][] = graph.nodes.map(() => []);
  const children: number[][] = graph.nodes.map(() => []);
  for (const edge of graph.edges) {
    children[edge.from]!.push(edge.to);
    parents[edge.to]!.push(edge.from);
  }
  const groups = new Map<string, number[]>();
  graph.nodes.forEach((node, i) => {
    // An action that has the step's own name is missing here: such steps count as equal.
    const key = JSON.stringify([node.agent, node.action ?? "", parents[i], children[i]]);
    const group = groups.get(key);
    if (group) group.push(i);
    else groups.set(key, [i]);
  });
  return [...groups.values()].filter((group) => group.length >= fewestFolded).map((group) => group.sort((a, b) => graph.nodes[a]!.y - graph.nodes[b]!.y));
}

/** The drawing with some groups folded, and without hidden steps. */
export function shownPart(graph: Graph, folded: readonly (readonly number[])[], hidden: ReadonlySet<number>): Shown {
  const boxOf = new Map<string, number>();
  if (folded.length === 0 && hidden.size === 0) {
    graph.nodes.forEach((node, i) => boxOf.set(node.name, i));
    return { ...graph, boxOf };
  }
  // A stack stands at the place of its middle step, whose edges it has: nothing else is there.
  const stackAt = new Map<number, readonly number[]>();
  const inStack = new Set<number>();
  for (const group of folded) {
    stackAt.set(group[group.length >> 1]!, group);
    for (const i of group) inStack.add(i);
  }
  const nodes: Box[] = [];
  const newIndex = new Map<number, number>();
  graph.nodes.forEach((node, i) => {
    const group = stackAt.get(i);
    if (group) {
      const members = group.filter((m) => !hidden.has(m));
      if (members.length === 0) return;
      for (const m of members) boxOf.set(graph.nodes[m]!.name, nodes.length);
      newIndex.set(i, nodes.length);
      nodes.push({ ...node, name: graph.nodes[group[0]!]!.name, members });
    } else if (!inStack.has(i) && !hidden.has(i)) {
      boxOf.set(node.name, nodes.length);
      newIndex.set(i, nodes.length);
      nodes.push(node);
    }
  });
  let edges = graph.edges.filter((e) => newIndex.has(e.from) && newIndex.has(e.to));
  // A stack that is alone in its column moves to the middle of its steps.
  const inColumn = new Map<number, number>();
  for (const n of nodes) inColumn.set(n.x, (inColumn.get(n.x) ?? 0) + 1);
  for (const [i, group] of stackAt) {
    const at = newIndex.get(i);
    const box = at === undefined ? undefined : nodes[at]!;
    if (!box || inColumn.get(box.x) !== 1 || edges.some((e) => crosses(e.points, box.x, box.x + graph.nodeWidth))) continue;
    const by = Math.round((graph.nodes[group[0]!]!.y + graph.nodes[group.at(-1)!]!.y) / 2) - box.y;
    box.y += by;
    edges = edges.map((e) => {
      if (e.from !== i && e.to !== i) return e;
      const points = [...e.points];
      points[e.from === i ? 1 : points.length - 1]! += by;
      return { ...e, points };
    });
  }
  const x = closer(nodes.map((n) => [n.x, n.x + graph.nodeWidth]), columnGap);
  const y = closer(
    nodes.map((n): [number, number] => [n.y, n.y + graph.nodeHeight]).concat(edges.flatMap((e) => bends(e.points).map((at): [number, number] => [at - bendSpace, at + bendSpace]))),
    nodeGap,
  );
  return {
    ...graph,
    width: x.size,
    height: y.size,
    nodes: nodes.map((n) => ({ ...n, x: x.map(n.x), y: y.map(n.y) })),
    edges: edges.map((e) => ({ from: newIndex.get(e.from)!, to: newIndex.get(e.to)!, points: e.points.map((p, i) => (i % 2 === 0 ? x.map(p) : y.map(p))) })),
    boxOf,
  };
}

/** Whether a line passes through a column, instead of ending there. */
function crosses(points: readonly number[], x0: number, x1: number): boolean {
  for (let i = 2; i < points.length - 2; i += 2) if (points[i]! >= x0 && points[i]! <= x1) return true;
  return false;
}

/** The heights of the points of a line between its ends. */
function bends(points: readonly number[]): number[] {
  return points.filter((_, i) => i % 2 === 1 && i > 1 && i < points.length - 1);
}

/** Moves intervals of an axis together: wide space between them becomes gap. */
export function closer(intervals: readonly (readonly [number, number])[], gap: number): { map: (at: number) => number; size: number } {
  const sorted = [...intervals].sort((a, b) => a[0] - b[0]);
  // Between two knots the axis is moved evenly.
  const from: number[] = [];
  const to: number[] = [];
  let end = -Infinity;
  let shift = 0;
  for (const [low, high] of sorted) {
    if (end === -Infinity) shift = margin - low;
    if (low > end) {
      if (end > -Infinity) {
        from.push(end);
        to.push(end + shift);
        shift -= Math.max(0, low - end - gap);
      }
      from.push(low);
      to.push(low + shift);
    }
    end = Math.max(end, high);
  }
  if (end === -Infinity) return { map: (at) => at, size: 2 * margin };
  from.push(end);
  to.push(end + shift);
  const map = (at: number) => {
    let low = 0;
    let high = from.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (from[middle]! <= at) low = middle + 1;
      else high = middle;
    }
    const i = low - 1;
    if (i < 0) return at + to[0]! - from[0]!;
    if (i === from.length - 1 || from[i + 1] === from[i]) return at + to[i]! - from[i]!;
    return Math.round(to[i]! + ((at - from[i]!) * (to[i + 1]! - to[i]!)) / (from[i + 1]! - from[i]!));
  };
  return { map, size: end + shift + margin };
}

/** The states of a stack's steps, the most urgent first, with their numbers. */
export function countMarks(marks: readonly Mark[]): { mark: Mark; n: number }[] {
  const counts = new Map<string, { mark: Mark; n: number }>();
  for (const mark of marks) {
    const key = `${mark.sign} ${mark.word}`;
    const count = counts.get(key);
    if (count) count.n++;
    else counts.set(key, { mark, n: 1 });
  }
  return [...counts.values()].sort((a, b) => urgency(a.mark) - urgency(b.mark) || b.n - a.n);
}

/** The state of a stack as one mark. */
export function stackMark(counts: readonly { mark: Mark; n: number }[]): Mark {
  const first = counts[0];
  if (!first) return { sign: "", word: "", tone: "calm", detail: "" };
  if (counts.length === 1) return { ...first.mark, word: `${first.n} ${first.mark.word}`, detail: "" };
  return {
    sign: "",
    word: counts.map(({ mark, n }) => `${mark.sign} ${n}`).join("  "),
    tone: first.mark.tone,
    detail: counts.map(({ mark, n }) => `${n} ${mark.word}`).join(", "),
  };
}
