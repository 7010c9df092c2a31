// The part of a drawing that is visible, and how it moves. Pure: graph.tsx shows it.
import type { Graph, GraphEdge } from "./types.ts";

/** A drawing's origin is at (x, y) of the window, in pixels, and is scaled by k. */
export interface View {
  x: number;
  y: number;
  k: number;
}

export interface Rect {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export const minZoom = 0.02;
export const maxZoom = 2.5;
/** Below this zoom text is not readable. */
export const readableZoom = 0.5;
const margin = 24;

const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, low), high);

/** The whole drawing in a window, not enlarged. */
export function fit(graph: Pick<Graph, "width" | "height">, width: number, height: number): View {
  const k = clamp(Math.min((width - 2 * margin) / Math.max(graph.width, 1), (height - 2 * margin) / Math.max(graph.height, 1)), minZoom, 1);
  return { k, x: (width - graph.width * k) / 2, y: (height - graph.height * k) / 2 };
}

/** A view with a step in the middle; a drawing that is smaller than the window stays centred. */
export function centre(graph: Graph, node: number, width: number, height: number, k: number): View {
  const n = graph.nodes[node];
  if (!n) return fit(graph, width, height);
  const along = (size: number, window: number, at: number) => (size * k <= window - 2 * margin ? (window - size * k) / 2 : clamp(window / 2 - at * k, window - size * k - margin, margin));
  return { k, x: along(graph.width, width, n.x + graph.nodeWidth / 2), y: along(graph.height, height, n.y + graph.nodeHeight / 2) };
}

/** Where a drawing opens: as a whole if it is readable then, otherwise at a step. */
export function opening(graph: Graph, node: number, width: number, height: number): View {
  const whole = fit(graph, width, height);
  return whole.k >= 0.75 ? whole : centre(graph, node, width, height, 1);
}

/** A view as the URL has it: the point of the drawing in the middle of the window, and the zoom in per cent. */
export function viewText(view: View, width: number, height: number): string {
  return [(width / 2 - view.x) / view.k, (height / 2 - view.y) / view.k, view.k * 100].map(Math.round).join(",");
}

/** Reads what viewText has written; undefined if it is nothing of the kind. */
export function viewOf(text: string | undefined, width: number, height: number): View | undefined {
  const found = /^(-?\d{1,9}),(-?\d{1,9}),(\d{1,4})$/.exec(text ?? "");
  if (!found || width === 0) return undefined;
  const k = clamp(Number(found[3]) / 100, minZoom, maxZoom);
  return { k, x: width / 2 - Number(found[1]) * k, y: height / 2 - Number(found[2]) * k };
}

/** Zooms by a factor. The point (px, py) of the window stays where it is. */
export function zoom(view: View, factor: number, px: number, py: number): View {
  const k = clamp(view.k * factor, minZoom, maxZoom);
  return { k, x: px - ((px - view.x) * k) / view.k, y: py - ((py - view.y) * k) / view.k };
}

/** The visible part of the drawing, enlarged on each side by a part of the window. */
export function visiblePart(view: View, width: number, height: number, more = 0): Rect {
  return { x0: (-view.x - more * width) / view.k, y0: (-view.y - more * height) / view.k, x1: ((1 + more) * width - view.x) / view.k, y1: ((1 + more) * height - view.y) / view.k };
}

export function contains(outer: Rect, inner: Rect): boolean {
  return outer.x0 <= inner.x0 && outer.y0 <= inner.y0 && outer.x1 >= inner.x1 && outer.y1 >= inner.y1;
}

export function overlaps(a: Rect, b: Rect): boolean {
  return a.x0 <= b.x1 && b.x0 <= a.x1 && a.y0 <= b.y1 && b.y0 <= a.y1;
}

/** The rectangle around a line. */
export function bounds(edge: GraphEdge): Rect {
  const r: Rect = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
  for (let i = 0; i + 1 < edge.points.length; i += 2) {
    const x = edge.points[i]!, y = edge.points[i + 1]!;
    r.x0 = Math.min(r.x0, x);
    r.x1 = Math.max(r.x1, x);
    r.y0 = Math.min(r.y0, y);
    r.y1 = Math.max(r.y1, y);
  }
  return r;
}

/** A line as an SVG path: straight through columns, curved between them, as internal/graph writes it. */
export function curve(points: readonly number[]): string {
  let path = "";
  for (let i = 0; i + 1 < points.length; i += 2) {
    const x = points[i]!, y = points[i + 1]!;
    if (i === 0) path += `M${x} ${y}`;
    else if (y === points[i - 1]) path += `H${x}`;
    else {
      const middle = Math.trunc((points[i - 2]! + x) / 2);
      path += `C${middle} ${points[i - 1]} ${middle} ${y} ${x} ${y}`;
    }
  }
  return path;
}

/** The head of an arrow that ends at a line's last point. Lines lead from left to right. */
export function arrowHead(points: readonly number[]): string {
  const x = points.at(-2) ?? 0, y = points.at(-1) ?? 0;
  return `M${x} ${y}l-8 -4v8z`;
}

/** The nodes in the order in which they are read: by column, then from top to bottom. */
export function readingOrder(graph: Graph): number[] {
  return graph.nodes.map((_, i) => i).sort((a, b) => graph.nodes[a]!.x - graph.nodes[b]!.x || graph.nodes[a]!.y - graph.nodes[b]!.y);
}

/** The node at a point of the drawing; -1 if there is none. */
export function nodeAt(graph: Graph, x: number, y: number): number {
  return graph.nodes.findIndex((n) => x >= n.x && x <= n.x + graph.nodeWidth && y >= n.y && y <= n.y + graph.nodeHeight);
}

/** Cuts a text that is wider than a box; wide characters count twice. */
export function shorten(text: string, columns: number): string {
  let width = 0;
  let end = 0;
  for (const c of text) {
    width += /[ᄀ-ᅟ⺀-꓏가-힣豈-﫿︰-﹏＀-｠￠-￦]|\p{Extended_Pictographic}/u.test(c) ? 2 : 1;
    if (width <= columns - 1) end += c.length;
  }
  return width <= columns ? text : `${text.slice(0, end)}…`;
}
