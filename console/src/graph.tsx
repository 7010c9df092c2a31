// The graph of a job's steps. Where text is readable, the part near the window is drawn as SVG; a graph of many steps that
// is zoomed out is drawn on a canvas. Places never change while the job runs; colours do.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { drawMinimap, FarCanvas, type Colours, type Scene } from "./canvas.ts";
import { countMarks, shownPart, siblings, stackMark, type Box, type Shown } from "./fold.ts";
import { useKeys } from "./keys.ts";
import { boxName, mostPictureBoxes, nameColumns, picture, wordColumns } from "./picture.ts";
import { PictureMenu } from "./picturemenu.tsx";
import { place, setQuery } from "./place.ts";
import type { Mark, Tone } from "./state.ts";
import { theme } from "./theme.ts";
import type { Graph } from "./types.ts";
import { arrowHead, bounds, centre, contains, curve, fit, nodeAt, opening, overlaps, readableZoom, shorten, viewOf, viewText, visiblePart, zoom, type Rect, type View } from "./view.ts";
import { Icon, plural } from "./widgets.tsx";

/** From this many boxes on, a graph that is zoomed out is drawn on a canvas. */
const manyNodes = 300;
/** More edges than this near the window are drawn fainter. */
const manyEdges = 400;
/** How far a pointer may move in a click, in pixels. */
const clickSlack = 4;
/** How much more than the window is drawn on each side, in windows. */
const windowsAround = 0.5;
/** The height of a frame that fills the window, at least, and what is below it, in pixels. */
const lowestFrame = 360;
const frameMargin = 24;
/** Narrower windows have a frame of a fixed part of their height (style.css). */
const narrowWidth = 640;
const buttonZoom = 1.3;
const keyStep = 80;
/** How long after a movement the view is written into the URL, in milliseconds. */
const settleTime = 400;
const minimapWidth = 168;
const minimapHeight = 112;
/** Stacks that the URL can name as unfolded. */
const mostUnfolded = 50;

const noMark: Mark = { sign: "", word: "", tone: "calm", detail: "" };

export interface JobGraphProps {
  graph: Graph;
  marks: ReadonlyMap<string, Mark>;
  /** The steps that are settled. */
  settled: (step: string) => boolean;
  chosen: string | undefined;
  /** The step at which the graph opens. */
  start: string | undefined;
  choose: (step: string | undefined) => void;
  /** The heading of a picture: the job's name, and its state. */
  title: string;
  state: string;
}

/** The graph of a job, with what its URL says: what is searched for, folded, hidden, and where the window is. */
export function JobGraph({ graph, marks, settled, chosen, start, choose, title, state }: JobGraphProps) {
  const { query } = place.value;
  const groups = useMemo(() => siblings(graph), [graph]);
  const hide = query.get("open") === "true";
  const unfolded = query.getAll("unfold").slice(0, mostUnfolded).join("\n");
  const find = (query.get("find") ?? "").toLowerCase();
  // Steps that settle later stay where they are.
  const hidden = useMemo(() => new Set(hide ? graph.nodes.flatMap((n, i) => (settled(n.name) ? [i] : [])) : []), [graph, hide]);
  const shown = useMemo(() => {
    const open = unfolded.split("\n");
    return shownPart(graph, open.includes("*") ? [] : groups.filter((g) => !open.includes(graph.nodes[g[0]!]!.name)), hidden);
  }, [graph, groups, unfolded, hidden]);
  const boxMarks = useMemo(
    () => shown.nodes.map((n) => (n.members ? stackMark(countMarks(n.members.map((m) => marks.get(graph.nodes[m]!.name) ?? noMark))) : (marks.get(n.name) ?? noMark))),
    [shown, marks],
  );
  const boxOf = (step: string | undefined) => (step === undefined ? -1 : (shown.boxOf.get(step) ?? -1));
  const stack = query.get("stack") ?? undefined;

  const found = useMemo(() => (find ? graph.nodes.filter((n) => n.name.toLowerCase().includes(find) || n.agent.toLowerCase().includes(find)).map((n) => n.name) : []), [graph, find]);
  const lit = useMemo(() => (find ? new Set(found.map((name) => shown.boxOf.get(name) ?? -1)) : undefined), [found, shown]);
  const next = (by: number) => {
    if (found.length === 0) return;
    const at = chosen === undefined ? -1 : found.indexOf(chosen);
    choose(found[at < 0 ? (by > 0 ? 0 : found.length - 1) : (at + by + found.length) % found.length]);
  };
  const chooseBox = (i: number) => {
    const box = shown.nodes[i];
    if (box?.members) setQuery({ stack: box.name, step: undefined });
    else choose(box?.name);
  };
  const make = () => (shown.nodes.length > mostPictureBoxes ? undefined : picture(shown, boxMarks, title, state, countMarks([...marks.values()])));
  return (
    <div class="box">
      <div class="steps-filter">
        <input
          data-filter=""
          aria-label="Find steps by name or agent"
          placeholder="find a step"
          value={query.get("find") ?? ""}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => setQuery({ find: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key !== "Enter") return;
            event.preventDefault();
            next(event.shiftKey ? -1 : 1);
          }}
        />
        {find && (
          <span class="muted small" role="status">
            {plural(found.length, "step")}
            {found.length > 0 && ": Enter shows the next one"}
          </span>
        )}
        <label>
          <input type="checkbox" checked={hide} onChange={(event) => setQuery({ open: event.currentTarget.checked ? "true" : undefined })} /> hide settled
        </label>
        {groups.length > 0 && (
          <label>
            <input type="checkbox" checked={unfolded === ""} onChange={(event) => setQuery({ unfold: event.currentTarget.checked ? undefined : "*", stack: undefined })} /> fold equal steps
          </label>
        )}
        <div class="end">
          <PictureMenu make={make} name={`${title}-graph`} />
        </div>
      </div>
      {shown.nodes.length === 0 ? (
        <div class="empty">
          <h2>All steps are settled</h2>
          <button type="button" onClick={() => setQuery({ open: undefined })}>
            Show them
          </button>
        </div>
      ) : (
        <GraphView
          shown={shown}
          steps={graph.nodes.length}
          marks={boxMarks}
          chosen={chosen !== undefined ? boxOf(chosen) : boxOf(stack)}
          start={boxOf(start)}
          startName={start}
          choose={chooseBox}
          lit={lit}
          at={query.get("view") ?? undefined}
          moved={(text) => setQuery({ view: text })}
        />
      )}
    </div>
  );
}

export interface GraphProps {
  shown: Shown;
  /** How many steps the graph has. */
  steps: number;
  /** Of each box. */
  marks: readonly Mark[];
  /** The box that is chosen, and the one at which the graph opens; -1: none. */
  chosen: number;
  start: number;
  startName?: string | undefined;
  choose: (box: number) => void;
  /** The boxes that match what is searched for. */
  lit?: ReadonlySet<number> | undefined;
  /** The window, as viewText writes it, and what is called after it was moved. */
  at?: string | undefined;
  moved?: (at: string | undefined) => void;
  children?: ComponentChildren;
}

/** The class of a frame that need not fill the window. */
function frameClass(graph: Shown): string {
  return graph.height <= 170 ? "low" : graph.height <= 320 ? "middling" : "";
}

export function GraphView({ shown: graph, steps, marks, chosen, start, startName, choose, lit, at, moved }: GraphProps) {
  const frame = useRef<HTMLDivElement>(null);
  const layer = useRef<SVGGElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSignal({ width: 0, height: 0 });
  const view = useSignal<View>({ x: 0, y: 0, k: 1 });
  const dragged = useSignal(false);
  const lines = useMemo(() => graph.edges.map((e) => ({ edge: e, bounds: bounds(e), path: curve(e.points), head: arrowHead(e.points) })), [graph]);
  const scene = useMemo<Scene>(() => ({ boxes: graph.nodes, boxWidth: graph.nodeWidth, boxHeight: graph.nodeHeight, edges: lines }), [graph, lines]);

  // The window's size; the first one decides where the graph opens. The observer outlives a rendering, so it reads these.
  const latest = useRef({ graph, chosen, start, at });
  latest.current = { graph, chosen, start, at };
  const openView = () => {
    const { graph, chosen, start, at } = latest.current, { width, height } = size.peek();
    return viewOf(at, width, height) ?? opening(graph, chosen >= 0 ? chosen : start, width, height);
  };
  const written = useRef<string | undefined>(at);
  const handMoved = useRef(false);
  useLayoutEffect(() => {
    const element = frame.current!;
    const measure = () => {
      // A large graph ends where the window ends, so that its tools are visible.
      const top = element.getBoundingClientRect().top + scrollY;
      const fills = innerWidth > narrowWidth && !element.classList.contains("low") && !element.classList.contains("middling");
      element.style.height = fills ? `${Math.max(lowestFrame, innerHeight - top - frameMargin)}px` : "";
      const { clientWidth: width, clientHeight: height } = element;
      const before = size.peek();
      const whole = before.width > 0 && contains(visiblePart(view.peek(), before.width, before.height), { x0: 0, y0: 0, x1: latest.current.graph.width, y1: latest.current.graph.height });
      size.value = { width, height };
      // A graph that was visible as a whole stays so, for example beside the panel of a step.
      if (width > 0 && (before.width === 0 || (whole && width !== before.width && !handMoved.current))) view.value = openView();
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    addEventListener("resize", measure);
    return () => {
      observer.disconnect();
      removeEventListener("resize", measure);
    };
  }, [frameClass(graph)]);
  // Another drawing, because steps were folded or hidden, opens again.
  const before = useRef(graph);
  useLayoutEffect(() => {
    if (before.current === graph) return;
    before.current = graph;
    if (size.peek().width > 0) view.value = opening(graph, chosen >= 0 ? chosen : start, size.peek().width, size.peek().height);
  }, [graph]);
  // The URL follows the window after a while, and the window follows the URL (back, forward).
  useSignalEffect(() => {
    const text = viewText(view.value, size.value.width, size.value.height);
    if (!handMoved.current || size.value.width === 0) return;
    const timer = setTimeout(() => {
      if (written.current === text) return;
      written.current = text;
      moved?.(text);
    }, settleTime);
    return () => clearTimeout(timer);
  });
  useEffect(() => {
    if (at === written.current || size.peek().width === 0) return;
    written.current = at;
    handMoved.current = false;
    view.value = openView();
  }, [at]);
  const setView = (to: View) => {
    handMoved.current = true;
    view.value = to;
  };

  // What is drawn is larger than the window, so that most movements only change the transform.
  const drawn = useSignal<{ part: Rect; far: boolean }>({ part: { x0: 0, y0: 0, x1: 0, y1: 0 }, far: false });
  const far = useRef<FarCanvas | undefined>(undefined);
  useSignalEffect(() => {
    const { width, height } = size.value;
    const v = view.value;
    layer.current?.setAttribute("transform", `translate(${v.x} ${v.y}) scale(${v.k})`);
    const isFar = v.k < readableZoom && before.current.nodes.length >= manyNodes;
    if (isFar) far.current?.move(v, width, height);
    const last = drawn.peek();
    if (isFar !== last.far || (!isFar && !contains(last.part, visiblePart(v, width, height)))) {
      drawn.value = { far: isFar, part: visiblePart(v, width, height, windowsAround) };
    }
  });
  useLayoutEffect(() => {
    // The part that was drawn belongs to the earlier drawing.
    drawn.value = { far: view.peek().k < readableZoom && graph.nodes.length >= manyNodes, part: visiblePart(view.peek(), size.peek().width, size.peek().height, windowsAround) };
  }, [graph]);

  const toMiddle = (factor: number) => setView(zoom(view.value, factor, size.value.width / 2, size.value.height / 2));
  const showAll = () => setView(fit(graph, size.value.width, size.value.height));
  const show = (i: number) => setView(centre(graph, i, size.value.width, size.value.height, Math.max(view.value.k, 1)));
  useEffect(() => {
    const n = graph.nodes[chosen];
    if (!n || size.peek().width === 0) return;
    const box = { x0: n.x, y0: n.y, x1: n.x + graph.nodeWidth, y1: n.y + graph.nodeHeight };
    if (!contains(visiblePart(view.value, size.value.width, size.value.height, -0.05), box)) view.value = centre(graph, chosen, size.value.width, size.value.height, Math.max(view.value.k, 1));
  }, [chosen]);
  useKeys({ f: showAll, "+": () => toMiddle(buttonZoom), "-": () => toMiddle(1 / buttonZoom) });

  // Wheel and pointers. Preact would add the listener of the wheel as a passive one, which cannot keep the page still.
  useEffect(() => {
    const element = frame.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      setView(zoom(view.value, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - box.left, event.clientY - box.top));
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
      if (before > 0) setView(zoom(view.value, after / before, (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top));
    } else {
      setView({ ...view.value, x: view.value.x + dx, y: view.value.y + dy });
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
    choose(nodeAt(graph, (event.clientX - box.left - v.x) / v.k, (event.clientY - box.top - v.y) / v.k));
  };

  const keys = (event: KeyboardEvent) => {
    const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[event.key] ?? [0, 0];
    if ((dx === 0 && dy === 0) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (chosen < 0 || event.shiftKey) {
      setView({ ...view.value, x: view.value.x - dx * keyStep, y: view.value.y - dy * keyStep });
      return;
    }
    const next = neighbour(graph, chosen, dx, dy);
    if (next >= 0) choose(next);
  };

  const { part, far: isFar } = drawn.value;
  // All edges are one path: a thousand small elements would take longer than all else.
  const paths = useMemo(() => {
    const near = isFar ? [] : lines.filter((line) => overlaps(line.bounds, part));
    const nodes = isFar ? [] : graph.nodes.flatMap((n, i) => (overlaps(part, { x0: n.x, y0: n.y, x1: n.x + graph.nodeWidth, y1: n.y + graph.nodeHeight }) ? [i] : []));
    const join = (list: typeof lines, of: "path" | "head") => list.map((line) => line[of]).join("");
    return { nodes, dense: near.length > manyEdges, edges: join(near, "path"), heads: join(near, "head"), lit: join(near.filter((line) => line.edge.from === chosen || line.edge.to === chosen), "path") };
  }, [lines, part, isFar, chosen]);
  const tones = useMemo(() => marks.map((mark) => mark.tone), [marks]);
  const faint = useMemo(() => (lit ? graph.nodes.map((_, i) => !lit.has(i)) : []), [graph, lit]);
  const colours = useColours(frame);
  useLayoutEffect(() => {
    if (!isFar || !canvas.current || !colours) return;
    far.current ??= new FarCanvas(canvas.current);
    far.current.set(scene, tones, faint, colours, graph.nodes[chosen]);
    far.current.move(view.peek(), size.peek().width, size.peek().height);
  }, [isFar, scene, tones, faint, colours, chosen]);
  useEffect(() => {
    if (isFar) return;
    far.current?.stop();
    far.current = undefined; // its canvas has left the page
  }, [isFar]);
  useEffect(() => () => far.current?.stop(), []);

  const zoomText = useComputed(() => `${Math.round(view.value.k * 100)} %`);
  const zoomLabel = useComputed(() => `${zoomText.value}: show the actual size`);
  return (
    <div
      ref={frame}
      class={`graph ${frameClass(graph)}${dragged.value ? " dragged" : ""}`}
      tabIndex={0}
      role="group"
      aria-label={`Graph of ${plural(steps, "step")}. Arrow keys follow its edges. The tab Steps has the same as a table.`}
      onPointerDown={down}
      onPointerMove={move}
      onPointerUp={up}
      onPointerCancel={up}
      onKeyDown={keys}
    >
      {isFar && <canvas ref={canvas} aria-hidden="true" />}
      <svg aria-hidden="true" focusable="false">
        <g ref={layer} transform={`translate(${view.peek().x} ${view.peek().y}) scale(${view.peek().k})`}>
          <path class={`edge${paths.dense ? " dense" : ""}`} d={paths.edges} />
          <path class="tip" d={paths.heads} />
          <path class="edge lit" d={paths.lit} />
          {paths.nodes.map((i) => (
            <NodeBox key={i} box={graph.nodes[i]!} graph={graph} mark={marks[i] ?? noMark} chosen={i === chosen} faint={faint[i] ?? false} />
          ))}
        </g>
      </svg>
      {graph.edgesLeftOut && <p class="graph-note muted small">{graph.edgesLeftOut} of the longest edges are not drawn.</p>}
      <div class="graph-corner">
        {colours && <Minimap scene={scene} graph={graph} tones={tones} colours={colours} view={view} size={size} go={setView} />}
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
          {start >= 0 && (
            <button type="button" class="bare" aria-label={`Show ${startName ?? "the step"}`} title={`Show ${startName ?? "the step"}`} onClick={() => show(start)}>
              <Icon name="target" />
            </button>
          )}
        </div>
      </div>
    </div>
  );
}

function NodeBox({ box, graph, mark, chosen, faint }: { box: Box; graph: Graph; mark: Mark; chosen: boolean; faint: boolean }) {
  const name = boxName(box);
  const second = `${mark.sign} ${mark.word}`.trim() || (box.action ?? box.agent);
  return (
    <g class={`node ${mark.tone}${chosen ? " chosen" : ""}${faint ? " faint" : ""}`} transform={`translate(${box.x} ${box.y})`} data-step={box.members ? undefined : box.name} data-stack={box.members ? box.name : undefined}>
      <title>{mark.word ? `${name}: ${mark.word}${mark.detail && `, ${mark.detail}`}` : `${name}: ${box.agent}`}</title>
      {box.members && <rect x="6" y="6" width={graph.nodeWidth} height={graph.nodeHeight} rx="6" />}
      {box.members && <rect x="3" y="3" width={graph.nodeWidth} height={graph.nodeHeight} rx="6" />}
      <rect width={graph.nodeWidth} height={graph.nodeHeight} rx="6" />
      <text x="12" y="19">
        {shorten(name, nameColumns)}
      </text>
      <text class="word" x="12" y="35">
        {shorten(second, wordColumns)}
      </text>
    </g>
  );
}

const tones: Tone[] = ["calm", "busy", "good", "warn", "bad"];

/** The colours of the style sheet, as a canvas needs them, in light or dark. */
function useColours(frame: { current: HTMLElement | null }): Colours | undefined {
  const colours = useSignal<Colours | undefined>(undefined);
  const chosenTheme = theme.value;
  useLayoutEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const read = () => {
      const probe = document.createElement("i");
      frame.current!.append(probe);
      const colour = (name: string) => {
        probe.className = `far ${name}`;
        return getComputedStyle(probe).color;
      };
      colours.value = { ...(Object.fromEntries(tones.map((tone) => [tone, colour(tone)])) as Record<Tone, string>), line: colour("far-line"), accent: colour("far-accent") };
      probe.remove();
    };
    read();
    dark.addEventListener("change", read);
    return () => dark.removeEventListener("change", read);
  }, [chosenTheme]);
  return colours.value;
}

/** The whole graph, small, with the part that the window shows. It is there if the window shows less than everything. */
function Minimap({ scene, graph, tones, colours, view, size, go }: { scene: Scene; graph: Shown; tones: readonly Tone[]; colours: Colours; view: { value: View }; size: { value: { width: number; height: number } }; go: (view: View) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width, height } = size.value;
  const k = Math.min(minimapWidth / graph.width, minimapHeight / graph.height);
  const part = visiblePart(view.value, width, height);
  const larger = width > 0 && !contains(part, { x0: 0, y0: 0, x1: graph.width, y1: graph.height });
  const w = Math.max(8, graph.width * k), h = Math.max(8, graph.height * k);
  useLayoutEffect(() => {
    if (larger && canvas.current) drawMinimap(canvas.current, scene, w, h, k, tones, colours);
  }, [scene, tones, colours, larger]);
  if (!larger) return null;
  const to = (event: PointerEvent) => {
    event.stopPropagation();
    if (event.type === "pointermove" && event.buttons === 0) return;
    const target = event.currentTarget as Element;
    if (event.type === "pointerdown") target.setPointerCapture(event.pointerId);
    const box = target.getBoundingClientRect();
    const x = (event.clientX - box.left) / k, y = (event.clientY - box.top) / k;
    go({ k: view.value.k, x: width / 2 - x * view.value.k, y: height / 2 - y * view.value.k });
  };
  const inside = (at: number, most: number) => Math.min(Math.max(at * k, 0), most);
  const x0 = inside(part.x0, w), y0 = inside(part.y0, h);
  return (
    <div class="minimap" aria-hidden="true">
      <canvas ref={canvas} />
      <svg width={w} height={h} onPointerDown={to} onPointerMove={to} onPointerUp={(event) => event.stopPropagation()}>
        <rect x={x0} y={y0} width={Math.max(3, inside(part.x1, w) - x0)} height={Math.max(3, inside(part.y1, h) - y0)} />
      </svg>
    </div>
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
