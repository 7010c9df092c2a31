// The timeline of a job: one row for each step, with its runs, and what it waited for between them; or the rows of each
// host, with the runs that it has carried out. Idle time is folded. Only the rows near the window are in the page.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { callUrl } from "./api.ts";
import { useKeys } from "./keys.ts";
import { useLoad } from "./load.ts";
import { place, setQuery } from "./place.ts";
import { rowHeights, savedTimeline, shapesOf, titleOf, type Shape } from "./timelinepicture.ts";
import { PictureMenu } from "./picturemenu.tsx";
import { useRuns } from "./paged.ts";
import { endOf, partOf, rowOf, rowsByHost, runsByStep, scaleOf, startOf, ticksOf, wholeTime, words, type Kind, type Row, type Scale, type Time } from "./spans.ts";
import { link } from "./router.ts";
import { absolute, serverNow, span } from "./time.ts";
import type { Job, PageAlert, RunRecord, Step } from "./types.ts";
import { shorten } from "./view.ts";
import { Icon, now, plural, ProblemNote, Waiting } from "./widgets.tsx";

/** How much more than the window is drawn, in rows. */
const rowsAround = 20;
/** How far a pointer must move to select a part of the time, in pixels. */
const dragSlack = 6;
const keyZoom = 0.6;
const keyMove = 0.25;
const tickApart = 86;
/** The longest table of runs. */
const mostListed = 200;
const narrowBelow = 640;
const mostAlerts = 500;
const alertsEvery = 5000;

export interface TimelineProps {
  job: Job;
  steps: ReadonlyMap<string, Step>;
  order: readonly string[];
  chosen: string | undefined;
  choose: (step: string | undefined, run?: number) => void;
}

export function Timeline({ job, steps, order, chosen, choose }: TimelineProps) {
  const recorded = useRuns(job);
  // A job that moves is drawn anew each second; for others, the end of the scale need not follow the clock.
  const moving = job.phase !== "settled";
  const at = moving ? now.value : Date.parse(job.updatedAt);
  const runs = useMemo(() => runsByStep(recorded.items, steps), [recorded.items, steps]);
  // When a step was parked is in its alerts, also after they are closed.
  const alerts = useLoad<PageAlert>(callUrl(["v1", "alerts"], `?job=${job.id}&kind=parked&closed=true&limit=${mostAlerts}`), moving ? alertsEvery : 0);
  const byHost = place.value.query.get("by") === "host";
  const rows = useMemo(() => {
    if (byHost) return rowsByHost(runs, at);
    const parked = new Map<string, Time[]>();
    for (const alert of [...(job.alerts ?? []), ...(alerts.data?.items ?? [])]) {
      if (alert.kind !== "parked" || !alert.step) continue;
      const times = parked.get(alert.step) ?? [];
      times.push({ from: Date.parse(alert.raisedAt), ...(alert.closedAt && { to: Date.parse(alert.closedAt) }) });
      parked.set(alert.step, times);
    }
    for (const times of parked.values()) times.sort((a, b) => a.from - b.from);
    return order.map((name) => rowOf(name, steps.get(name), runs.get(name) ?? [], at, parked.get(name)));
  }, [byHost, order, steps, runs, job.alerts, alerts.data, at]);
  if (!recorded.loaded) {
    return recorded.problem ? <ProblemNote problem={recorded.problem} again={recorded.again} /> : <div class="box"><Waiting /></div>;
  }
  if (runs.size === 0) {
    return (
      <div class="box empty">
        <h2>No run has started</h2>
        <p class="muted">The timeline shows each run from its start to its end, and what a step waits for between two runs.</p>
      </div>
    );
  }
  return (
    <div class="box">
      {(recorded.problem ?? alerts.problem) && <ProblemNote problem={(recorded.problem ?? alerts.problem)!} again={recorded.problem ? recorded.again : alerts.again} />}
      <Chart key={byHost ? "hosts" : "steps"} job={job} byHost={byHost} rows={rows} at={at} moving={moving} chosen={chosen} choose={choose} />
      {recorded.more && <p class="fine">The job has more runs than are shown here. The command <code>perdure history {job.id} --runs</code> prints all.</p>}
      <details class="fine">
        <summary>The same as a table</summary>
        <RunTable rows={rows} at={at} />
      </details>
    </div>
  );
}

interface ChartProps {
  job: Job;
  byHost: boolean;
  rows: readonly Row[];
  at: number;
  moving: boolean;
  chosen: string | undefined;
  choose: TimelineProps["choose"];
}

function Chart({ job, byHost, rows, at, moving, chosen, choose }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useLayoutEffect(() => {
    const measure = () => (width.value = frame.current!.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);

  const narrow = width.value < narrowBelow;
  const names = narrow ? 96 : 184;
  const inner = Math.max(width.value - names - 16, 50);
  const undone = useMemo(() => rows.some((row) => row.spans.some((part) => part.undo)), [rows]);
  const undo = undone && !byHost;
  const height = rowHeights(undo);
  const whole = useMemo(() => wholeTime(rows, Date.parse(job.submittedAt), at, moving), [rows, at, moving]);
  const { query } = place.value;
  const part = useMemo((): [number, number] | undefined => {
    const from = Date.parse(query.get("from") ?? ""), to = Date.parse(query.get("to") ?? "");
    return to > from ? [from, to] : undefined;
  }, [query]);
  const [from, to] = part ?? whole;
  const scale = useMemo(() => scaleOf(rows, from, to, inner), [rows, from, to, inner]);
  const ticks = useMemo(() => ticksOf(scale, narrow ? 64 : tickApart, -new Date(from).getTimezoneOffset()), [scale, narrow]);

  const zoomTo = (range: [number, number] | undefined) => {
    const part = range && partOf(range, whole);
    const text = (t: number) => new Date(t).toISOString();
    setQuery({ from: part && text(part[0]), to: part && text(part[1]) });
  };
  const zoomBy = (factor: number) => {
    const middle = scale.at(inner / 2), length = (to - from) * factor;
    if (length >= whole[1] - whole[0]) zoomTo(undefined);
    else zoomTo([middle - length / 2, middle + length / 2]);
  };
  const move = (by: number) => {
    const distance = Math.sign(by) * Math.max(Math.abs(by) * (to - from), 1);
    if (part) zoomTo([from + distance, to + distance]);
  };

  // Visible rows.
  const visibleRows = useSignal({ from: 0, to: 60 });
  const body = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const scrolled = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const next = { from: Math.max(0, Math.floor(-top / height) - rowsAround), to: Math.ceil((-top + innerHeight) / height) + rowsAround };
      const before = visibleRows.peek();
      if (Math.abs(next.from - before.from) > rowsAround / 2 || Math.abs(next.to - before.to) > rowsAround / 2) visibleRows.value = next;
    };
    scrolled();
    addEventListener("scroll", scrolled, { passive: true });
    addEventListener("resize", scrolled);
    return () => {
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", scrolled);
    };
  }, [height, rows.length]);

  // Dragging selects a part of the time.
  const drag = useSignal<{ from: number; to: number } | undefined>(undefined);
  const placeOf = (event: PointerEvent) => Math.min(Math.max(event.clientX - body.current!.getBoundingClientRect().left - names, 0), inner);
  const down = (event: PointerEvent) => {
    if (event.button !== 0 || event.pointerType === "touch" || placeOf(event) <= 0) return;
    drag.value = { from: placeOf(event), to: placeOf(event) };
    body.current!.setPointerCapture(event.pointerId);
  };
  // The run at the pointer, and the one that the keys have reached: their details are below the buttons.
  const hovered = useSignal<RunRecord | undefined>(undefined);
  const reached = useSignal<{ step: string; run: number } | undefined>(undefined);
  const rowAt = (event: PointerEvent) => rows[Math.floor((event.clientY - body.current!.getBoundingClientRect().top) / height)];
  const runAt = (event: PointerEvent): RunRecord | undefined => {
    const x = event.clientX - body.current!.getBoundingClientRect().left - names;
    const y = event.clientY - body.current!.getBoundingClientRect().top;
    const lower = undo && y % height > height / 2;
    // The last one is drawn above the others.
    return rowAt(event)?.spans.findLast((part) => part.run && (!undo || part.undo === lower) && part.to >= scale.from && part.from <= scale.to && scale.x(part.from) - 2 <= x && x <= Math.max(scale.x(part.to), scale.x(part.from) + 4) + 2)?.run;
  };
  const dragTo = (event: PointerEvent) => {
    if (drag.value) drag.value = { ...drag.value, to: placeOf(event) };
    const run = runAt(event);
    if (run !== hovered.peek()) hovered.value = run;
  };
  /** Goes to the next or the previous run that is shown, by row and time. */
  const reach = (by: number) => {
    const shown = rows.flatMap((row, at) => row.spans.flatMap((part) => (part.run && part.to >= scale.from && part.from <= scale.to ? [{ at, run: part.run }] : [])));
    const now = shown.findIndex(({ run }) => run.step === reached.peek()?.step && run.run === reached.peek()?.run);
    const next = shown[now < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(Math.max(now + by, 0), shown.length - 1)];
    if (!next) return;
    hovered.value = undefined;
    reached.value = { step: next.run.step, run: next.run.run };
    const top = body.current!.getBoundingClientRect().top + next.at * height;
    if (top < 180 || top + height > innerHeight - 40) window.scrollBy(0, top - innerHeight / 2);
  };
  const up = (event: PointerEvent) => {
    const d = drag.value;
    drag.value = undefined;
    if (event.type === "pointercancel") return;
    if (d && Math.abs(d.to - d.from) > dragSlack) zoomTo([scale.at(Math.min(d.from, d.to)), scale.at(Math.max(d.from, d.to))]);
    else if (event.button === 0) {
      const run = runAt(event);
      choose(run?.step ?? (byHost ? undefined : rowAt(event)?.step), run?.run);
    }
  };
  const keys = (event: KeyboardEvent) => {
    const act = ({ ArrowLeft: () => move(-keyMove), ArrowRight: () => move(keyMove), ArrowDown: () => reach(1), ArrowUp: () => reach(-1), Enter: reached.value && (() => choose(reached.value!.step, reached.value!.run)) } as Record<string, (() => void) | undefined>)[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };
  useKeys({ "+": () => zoomBy(keyZoom), "-": () => zoomBy(1 / keyZoom), f: () => zoomTo(undefined) });

  const first = Math.min(visibleRows.value.from, rows.length), last = Math.min(visibleRows.value.to, rows.length);
  const used = useMemo(() => kindsOf(rows), [rows]);
  const detail = useMemo(() => {
    const at = reached.value;
    return hovered.value ?? (at && rows.flatMap((row) => row.spans).find(({ run }) => run?.step === at.step && run.run === at.run)?.run);
  }, [rows, hovered.value, reached.value]);
  const title = `Timeline of ${job.key ?? job.id}`;
  const picture = () => savedTimeline(rows, scale, { title, ticks, width: names + inner + 16, names, lanes: !byHost, state: `${job.current} → ${job.desired}, ${job.phase}`, date: new Date(from).toISOString().slice(0, 10) });
  return (
    <>
      <div class="timeline-tools">
        <span class="muted small">
          {absolute(new Date(from).toISOString()).slice(0, 19)}, {span(to - from)}
        </span>
        <span class="group" role="group" aria-label="Rows">
          <button type="button" aria-pressed={!byHost} onClick={() => setQuery({ by: undefined })}>
            Steps
          </button>
          <button type="button" aria-pressed={byHost} onClick={() => setQuery({ by: "host" })}>
            Hosts
          </button>
        </span>
        <span class="end">
          <button type="button" class="bare" aria-label="Zoom out" title="Zoom out (-)" onClick={() => zoomBy(1 / keyZoom)}>
            <Icon name="minus" />
          </button>
          <button type="button" class="bare" aria-label="Zoom in" title="Zoom in (+), or drag over a part" onClick={() => zoomBy(keyZoom)}>
            <Icon name="plus" />
          </button>
          <button type="button" disabled={!part} title="Show the whole time (f)" onClick={() => zoomTo(undefined)}>
            Whole time
          </button>
          <PictureMenu make={picture} name={`${job.key ?? job.id}-timeline`} label="Picture of the timeline" />
        </span>
      </div>
      <p class="timeline-detail muted small" role="status">
        {detail ? (
          <bdi>{titleOf(detail.step, { kind: "other", from: startOf(detail), to: endOf(detail, at), undo: false, run: detail }, at).split("\n").join(" · ")}</bdi>
        ) : (
          "Point at a run to see its details. In the timeline, the keys ↓ and ↑ go from run to run, and Enter opens the step."
        )}
      </p>
      <div
        class="timeline"
        ref={frame}
        tabIndex={0}
        role="group"
        aria-label={`${title}, ${plural(rows.length, "row")}. Plus and minus zoom, the left and right arrow keys move, the up and down arrow keys go from run to run, Enter opens the step of the run. The table below has the same runs.`}
        onKeyDown={keys}
      >
        {width.value > 0 && (
          <>
            <svg class="timeline-axis" width={width.value} height="24" aria-hidden="true" focusable="false">
              <g transform={`translate(${names} 0)`}>
                {ticks.map((tick) => (
                  <text key={tick.t} x={tick.x} y="16">
                    {tick.label}
                  </text>
                ))}
              </g>
            </svg>
            <svg ref={body} class="timeline-rows" width={width.value} height={rows.length * height} aria-hidden="true" focusable="false" onPointerDown={down} onPointerMove={dragTo} onPointerUp={up} onPointerCancel={up} onPointerLeave={() => (hovered.value = undefined)}>
              <g transform={`translate(${names} 0)`}>
                {ticks.map((tick) => (
                  <line key={tick.t} class="grid" x1={tick.x} x2={tick.x} y1={first * height} y2={last * height} />
                ))}
                {scale.pieces.filter((piece) => piece.folded).map((piece) => (
                  <g key={piece.from} class="fold">
                    <title>{`nothing ran for ${span(piece.to - piece.from)}`}</title>
                    <rect x={piece.x} y={first * height} width={piece.width} height={(last - first) * height} />
                    <path d={`M${piece.x} ${first * height}v${(last - first) * height}M${piece.x + piece.width} ${first * height}v${(last - first) * height}`} />
                  </g>
                ))}
              </g>
              {rows.slice(first, last).map((row, i) => (
                <RowView key={row.step} row={row} scale={scale} y={(first + i) * height} height={height} width={width.value} names={names} undo={undo} at={at} chosen={!byHost && row.step === chosen} lit={(run) => (byHost && run.step === chosen) || (run.step === detail?.step && run.run === detail.run)} />
              ))}
              <g transform={`translate(${names} 0)`}>
                {scale.pieces.filter((piece) => piece.folded).map((piece) => (
                  <text key={piece.from} class="fold-text" x={piece.x + piece.width / 2} y={first * height + 12} text-anchor="middle">
                    {span(piece.to - piece.from)}
                  </text>
                ))}
                {drag.value && <rect class="drag" x={Math.min(drag.value.from, drag.value.to)} y={first * height} width={Math.abs(drag.value.to - drag.value.from)} height={(last - first) * height} />}
              </g>
            </svg>
          </>
        )}
      </div>
      <ul class="legend" aria-label="Legend">
        {used.map((kind) => (
          <li key={kind}>
            <svg width="30" height="14" aria-hidden="true" focusable="false">
              <g transform="translate(0 -7)">
                <Shapes shapes={shapesOf({ step: "", spans: [{ kind, from: 1, to: 9, undo: false, ...(runKinds.has(kind) && { run: nothing }) }] }, legendScale, false, 9).map((s) => ({ ...s, title: "" }))} />
              </g>
            </svg>
            {words[kind]}
          </li>
        ))}
        {undone && <li class="muted">undo runs are violet, {undo ? "have an arrow, and are below do runs" : "and have an arrow"}</li>}
        {scale.pieces.some((p) => p.folded) && <li class="muted">grey, between dashed lines: idle time, folded</li>}
      </ul>
    </>
  );
}

const runKinds = new Set<Kind>(["done", "failed", "expired", "returned", "running", "other"]);
const nothing: RunRecord = { step: "", run: 0 };
const legendScale = scaleOf([], 0, 10, 30);

function kindsOf(rows: readonly Row[]): Kind[] {
  const used = new Set(rows.flatMap((row) => row.spans.map((part) => part.kind)));
  return (Object.keys(words) as Kind[]).filter((kind) => used.has(kind));
}

interface RowProps {
  row: Row;
  scale: Scale;
  y: number;
  height: number;
  width: number;
  names: number;
  undo: boolean;
  at: number;
  chosen: boolean;
  /** Whether a run is to be seen among the others. */
  lit: (run: RunRecord) => boolean;
}

function RowView({ row, scale, y, height, width, names, undo, at, chosen, lit }: RowProps) {
  const name = row.label ?? row.step;
  return (
    <g class={`timeline-row${chosen ? " chosen" : ""}`} transform={`translate(0 ${y})`} data-step={row.step}>
      <rect class="back" width={width} height={height} />
      <line class="between" x2={width} y1={height - 0.5} y2={height - 0.5} />
      <text class="name" x="12" y={height / 2 + 4}>
        <title>{name}</title>
        {shorten(name, Math.floor((names - 16) / 7.2))}
      </text>
      <g transform={`translate(${names} 0)`}>
        <Shapes shapes={shapesOf(row, scale, undo, at)} lit={lit} />
      </g>
    </g>
  );
}

function Shapes({ shapes, lit }: { shapes: readonly Shape[]; lit?: (run: RunRecord) => boolean }) {
  return (
    <>
      {shapes.map((s, i) => (
        <g key={i} class={`span ${s.kind}${s.undo ? " undo" : ""}${s.run && lit?.(s.run) ? " lit" : ""}`}>
          {s.title && <title>{s.title}</title>}
          {s.bar && <rect x={s.x} y={s.y} width={s.width} height={s.height} rx={s.rx} />}
          {s.line && <path class="stroke" d={s.line} />}
          {s.sign && <path class="sign" d={s.sign} />}
        </g>
      ))}
    </>
  );
}

/** The same runs for screen readers, and for copying. */
function RunTable({ rows, at }: { rows: readonly Row[]; at: number }) {
  const runs = rows.flatMap((row) => row.spans.flatMap((part) => (part.run ? [part.run] : []))).sort((a, b) => startOf(a) - startOf(b));
  return (
    <>
      <RunList runs={runs.slice(-mostListed)} at={at} withStep />
      {runs.length > mostListed && <p class="muted">The latest {mostListed} of {runs.length} runs.</p>}
    </>
  );
}

/** Runs as rows of text. */
export function RunList({ runs, at, withStep = false }: { runs: readonly RunRecord[]; at: number; withStep?: boolean }) {
  return (
    <ol class="runs">
      {runs.map((run) => (
        <li key={`${run.step} ${run.run}`}>
          <span>
            {withStep && (
              <>
                <bdi>{run.step}</bdi>{" "}
              </>
            )}
            <b>run {run.run}</b> {run.direction ?? ""}
            {run.turn !== undefined && run.turn > 1 && <span class="muted"> turn {run.turn}</span>}
          </span>
          <span class="nowrap">
            {run.startedAt ? (
              <time dateTime={run.startedAt} title={absolute(run.startedAt)}>
                {absolute(run.startedAt).slice(11, 19)}
              </time>
            ) : (
              <span class="muted">start unknown</span>
            )}
          </span>
          <span class="nowrap muted">{run.startedAt ? span(endOf(run, at) - startOf(run)) : ""}</span>
          <span class={`state ${toneOf(run)}`}>{run.endedAt === undefined ? "running" : (run.outcome ?? "ended")}</span>
          {run.holder && (
            <span class="muted small wide">
              by <bdi>{run.holder}</bdi>
            </span>
          )}
          {run.error && (
            <span class="said small wide">
              <bdi>{run.error.slice(0, longestError)}</bdi>
            </span>
          )}
        </li>
      ))}
    </ol>
  );
}

const longestError = 300;

function toneOf(run: RunRecord): string {
  if (run.endedAt === undefined) return "busy";
  return run.outcome === "done" ? "good" : run.outcome === "returned" ? "warn" : "bad";
}

/** The runs of one step, latest first, for its panel. */
export function StepRuns({ job, name, steps }: { job: Job; name: string; steps: ReadonlyMap<string, Step> }) {
  const recorded = useRuns(job);
  const runs = useMemo(() => (runsByStep(recorded.items, steps).get(name) ?? []).toReversed(), [recorded.items, steps, name]);
  if (!recorded.loaded && recorded.problem) return <ProblemNote problem={recorded.problem} again={recorded.again} />;
  if (runs.length === 0) return null;
  return (
    <div>
      <h3>Runs</h3>
      <RunList runs={runs.slice(0, mostInPanel)} at={serverNow()} />
      {runs.length > mostInPanel && (
        <p class="muted small">
          The latest {mostInPanel} of {plural(runs.length, "run")}. <a href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), tab: "timeline", step: name })}>Timeline</a>
        </p>
      )}
      {recorded.more && (
        <p class="muted small">
          Later runs of the job are not loaded. The command <code>perdure history {job.id} --runs</code> prints all.
        </p>
      )}
    </div>
  );
}

const mostInPanel = 5;
