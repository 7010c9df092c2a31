// The graph of a job's steps. Only its visible part is in the page. A graph of many steps that is zoomed out is drawn as
// a few large paths instead of a box for each step. Places never change while the job runs; colours do.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useKeys } from "./keys.ts";
import type { Mark, Tone } from "./state.ts";
import type { Graph, GraphNode } from "./types.ts";
import { arrowHead, bounds, centre, contains, curve, fit, nodeAt, opening, overlaps, readableZoom, shorten, visiblePart, zoom, type Rect, type View } from "./view.ts";
import { Icon } from "./widgets.tsx";

/** From this many steps on, a graph that is zoomed out is drawn as paths. */
const manyNodes = 300;
/** How far a pointer may move in a click, in pixels. */
const clickSlack = 4;
/** How much more than the window is drawn on each side, in windows. */
const windowsAround = 0.5;
const buttonZoom = 1.3;
const keyStep = 80;

// Columns of text that fit into a box, as in internal/graph.
const nameColumns = 19;
const wordColumns = 22;

export interface GraphProps {
  graph: Graph;
  marks: ReadonlyMap<string, Mark>;
  chosen: string | undefined;
  /** The step at which the graph opens. */
  start: string | undefined;
  choose: (step: string | undefined) => void;
}

export function GraphView({ graph, marks, chosen, start, choose }: GraphProps) {
  const frame = useRef<HTMLDivElement>(null);
  const layer = useRef<SVGGElement>(null);
  const size = useSignal({ width: 0, height: 0 });
  const view = useSignal<View>({ x: 0, y: 0, k: 1 });
  const dragged = useSignal(false);
  const places = useMemo(() => {
    const index = new Map(graph.nodes.map((n, i) => [n.name, i]));
    return { index, lines: graph.edges.map((e) => ({ edge: e, bounds: bounds(e), path: curve(e.points), head: arrowHead(e.points) })) };
  }, [graph]);
  const indexOf = (step: string | undefined) => (step === undefined ? -1 : (places.index.get(step) ?? -1));

  // The window's size; the first one decides where the graph opens.
  useLayoutEffect(() => {
    const element = frame.current!;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element;
      const first = size.peek().width === 0;
      size.value = { width, height };
      if (first && width > 0) view.value = opening(graph, indexOf(chosen ?? start), width, height);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [graph]);

  // What is drawn is larger than the window, so that most movements only change the transform.
  const drawn = useSignal<{ part: Rect; far: boolean }>({ part: { x0: 0, y0: 0, x1: 0, y1: 0 }, far: false });
  useSignalEffect(() => {
    const { width, height } = size.value;
    const v = view.value;
    layer.current?.setAttribute("transform", `translate(${v.x} ${v.y}) scale(${v.k})`);
    const far = v.k < readableZoom && graph.nodes.length >= manyNodes;
    const before = drawn.peek();
    if (far !== before.far || (!far && !contains(before.part, visiblePart(v, width, height)))) {
      drawn.value = { far, part: visiblePart(v, width, height, windowsAround) };
    }
  });

  const toMiddle = (factor: number) => (view.value = zoom(view.value, factor, size.value.width / 2, size.value.height / 2));
  const showAll = () => (view.value = fit(graph, size.value.width, size.value.height));
  const bringIn = (i: number) => {
    const n = graph.nodes[i];
    if (!n) return;
    const box = { x0: n.x, y0: n.y, x1: n.x + graph.nodeWidth, y1: n.y + graph.nodeHeight };
    if (!contains(visiblePart(view.value, size.value.width, size.value.height, -0.05), box)) {
      view.value = centre(graph, i, size.value.width, size.value.height, Math.max(view.value.k, 1));
    }
  };
  useEffect(() => {
    if (chosen !== undefined && size.peek().width > 0) bringIn(indexOf(chosen));
  }, [chosen]);
  useKeys({ f: showAll, "+": () => toMiddle(buttonZoom), "-": () => toMiddle(1 / buttonZoom) });

  // Wheel and pointers. Preact would add the listener of the wheel as a passive one, which cannot keep the page still.
  useEffect(() => {
    const element = frame.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      view.value = zoom(view.value, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
  const pointers = useRef(new Map<number, { x: number; y: number; moved: number }>());
  const down = (event: PointerEvent) => {
    if (event.button !== 0 || (event.target as Element).closest("button")) return;
    frame.current!.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY, moved: 0 });
  };
  const move = (event: PointerEvent) => {
    const held = pointers.current;
    const p = held.get(event.pointerId);
    if (!p) return;
    const dx = event.clientX - p.x, dy = event.clientY - p.y;
    const other = [...held].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      // Two fingers: the distance zooms.
      const box = frame.current!.getBoundingClientRect();
      const before = Math.hypot(p.x - other.x, p.y - other.y), after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      if (before > 0) view.value = zoom(view.value, after / before, (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
    } else {
      view.value = { ...view.value, x: view.value.x + dx, y: view.value.y + dy };
    }
    Object.assign(p, { x: event.clientX, y: event.clientY, moved: p.moved + Math.abs(dx) + Math.abs(dy) + (other ? clickSlack : 0) });
    if (p.moved > clickSlack) dragged.value = true;
  };
  const up = (event: PointerEvent) => {
    const p = pointers.current.get(event.pointerId);
    pointers.current.delete(event.pointerId);
    dragged.value = false;
    if (!p || p.moved > clickSlack || event.type === "pointercancel") return;
    const box = frame.current!.getBoundingClientRect();
    const v = view.value;
    const i = nodeAt(graph, (event.clientX - box.left - v.x) / v.k, (event.clientY - box.top - v.y) / v.k);
    choose(graph.nodes[i]?.name);
  };

  const keys = (event: KeyboardEvent) => {
    const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[event.key] ?? [0, 0];
    if ((dx === 0 && dy === 0) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const at = indexOf(chosen);
    if (at < 0 || event.shiftKey) {
      view.value = { ...view.value, x: view.value.x - dx * keyStep, y: view.value.y - dy * keyStep };
      return;
    }
    const next = neighbour(graph, at, dx, dy);
    if (next >= 0) choose(graph.nodes[next]!.name);
  };

  const { part, far } = drawn.value;
  const chosenAt = indexOf(chosen);
  // All edges are one path: a thousand small elements would take longer than all else.
  const paths = useMemo(() => {
    const lines = far ? places.lines : places.lines.filter((line) => overlaps(line.bounds, part));
    const nodes = far ? [] : graph.nodes.filter((n) => overlaps(part, { x0: n.x, y0: n.y, x1: n.x + graph.nodeWidth, y1: n.y + graph.nodeHeight }));
    const lit = lines.filter((line) => line.edge.from === chosenAt || line.edge.to === chosenAt);
    const join = (list: typeof lines, of: "path" | "head") => list.map((line) => line[of]).join("");
    return { nodes, edges: join(lines, "path"), heads: far ? "" : join(lines, "head"), lit: join(lit, "path") };
  }, [places, part, far, chosenAt]);
  const zoomText = useComputed(() => `${Math.round(view.value.k * 100)} %`);
  const zoomLabel = useComputed(() => `${zoomText.value}: show the actual size`);
  return (
    <div
      ref={frame}
      class={`graph ${graph.height <= 170 ? "low" : graph.height <= 320 ? "middling" : ""}${dragged.value ? " dragged" : ""}`}
      tabIndex={0}
      role="group"
      aria-label={`Graph of ${graph.nodes.length} steps. Arrow keys follow its edges. The tab Steps has the same as a table.`}
      onPointerDown={down}
      onPointerMove={move}
      onPointerUp={up}
      onPointerCancel={up}
      onKeyDown={keys}
    >
      <svg aria-hidden="true" focusable="false">
        <g ref={layer} transform={`translate(${view.peek().x} ${view.peek().y}) scale(${view.peek().k})`}>
          <path class="edge" d={paths.edges} />
          <path class="tip" d={paths.heads} />
          <path class="edge lit" d={paths.lit} />
          {far ? <FarNodes graph={graph} marks={marks} /> : paths.nodes.map((n) => <NodeBox key={n.name} node={n} graph={graph} mark={marks.get(n.name)} chosen={n.name === chosen} />)}
          {far && graph.nodes[chosenAt] && <rect class="far-chosen" x={graph.nodes[chosenAt].x} y={graph.nodes[chosenAt].y} width={graph.nodeWidth} height={graph.nodeHeight} />}
        </g>
      </svg>
      {graph.edgesLeftOut && <p class="graph-note muted small">{graph.edgesLeftOut} of the longest edges are not drawn.</p>}
      <div class="graph-tools">
        <button type="button" class="bare" aria-label="Zoom out" title="Zoom out (-)" onClick={() => toMiddle(1 / buttonZoom)}>
          <Icon name="minus" />
        </button>
        <button type="button" class="bare" aria-label={zoomLabel} title="Actual size" onClick={() => toMiddle(1 / view.value.k)}>
          {zoomText}
        </button>
        <button type="button" class="bare" aria-label="Zoom in" title="Zoom in (+)" onClick={() => toMiddle(buttonZoom)}>
          <Icon name="plus" />
        </button>
        <button type="button" class="bare" aria-label="Fit into the window" title="Fit into the window (f)" onClick={showAll}>
          <Icon name="fit" />
        </button>
        {start !== undefined && (
          <button type="button" class="bare" aria-label={`Show ${start}`} title={`Show ${start}`} onClick={() => (view.value = centre(graph, indexOf(start), size.value.width, size.value.height, 1))}>
            <Icon name="target" />
          </button>
        )}
      </div>
    </div>
  );
}

function NodeBox({ node, graph, mark, chosen }: { node: GraphNode; graph: Graph; mark: Mark | undefined; chosen: boolean }) {
  return (
    <g class={`node ${mark?.tone ?? ""}${chosen ? " chosen" : ""}`} transform={`translate(${node.x} ${node.y})`} data-step={node.name}>
      <title>{mark ? `${node.name}: ${mark.word}${mark.detail && `, ${mark.detail}`}` : node.name}</title>
      <rect width={graph.nodeWidth} height={graph.nodeHeight} rx="6" />
      <text x="12" y="19">
        {shorten(node.name, nameColumns)}
      </text>
      <text class="word" x="12" y="35">
        {shorten(mark ? `${mark.sign} ${mark.word}` : node.agent, wordColumns)}
      </text>
    </g>
  );
}

function FarNodes({ graph, marks }: { graph: Graph; marks: ReadonlyMap<string, Mark> }) {
  const paths = useMemo(() => {
    const paths = new Map<Tone, string[]>();
    for (const n of graph.nodes) {
      const tone = marks.get(n.name)?.tone ?? "calm";
      const list = paths.get(tone) ?? [];
      list.push(`M${n.x} ${n.y}h${graph.nodeWidth}v${graph.nodeHeight}h${-graph.nodeWidth}z`);
      paths.set(tone, list);
    }
    return paths;
  }, [graph, marks]);
  return (
    <>
      {[...paths].map(([tone, list]) => (
        <path key={tone} class={`far ${tone}`} d={list.join("")} />
      ))}
    </>
  );
}

/** The step to which an arrow key leads: along an edge to the left or right, or within the column. */
export function neighbour(graph: Graph, at: number, dx: number, dy: number): number {
  const from = graph.nodes[at]!;
  const nearest = (indexes: number[]) => {
    let best = -1;
    let least = Infinity;
    for (const i of indexes) {
      const n = graph.nodes[i]!;
      const distance = Math.abs(n.x - from.x) + 2 * Math.abs(n.y - from.y);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  };
  if (dx > 0) return nearest(graph.edges.filter((e) => e.from === at).map((e) => e.to));
  if (dx < 0) return nearest(graph.edges.filter((e) => e.to === at).map((e) => e.from));
  return nearest(graph.nodes.flatMap((n, i) => (n.x === from.x && (n.y - from.y) * dy > 0 ? [i] : [])));
}
