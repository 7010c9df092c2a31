// Where the runs of a job are on its timeline: the parts of each row, and the scale of time, on which idle time is folded.
// Pure: timeline.tsx shows it, and saves it as a picture.
import type { RunRecord, Step } from "./types.ts";

export type Kind = "done" | "failed" | "expired" | "returned" | "running" | "other" | "ready" | "wait" | "backoff" | "parked" | "lock";

/** What each kind is called in the legend and in tooltips. */
export const words: Record<Kind, string> = {
  done: "done", failed: "failed", expired: "expired", returned: "returned", running: "running", other: "ended", ready: "ready, not claimed yet",
  wait: "between two runs", backoff: "backoff", parked: "parked", lock: "lock of the run",
};

/** A part of a row, in milliseconds. Parts of undo runs are below those of do runs. */
export interface Span {
  kind: Kind;
  from: number;
  to: number;
  undo: boolean;
  run?: RunRecord;
}

/** A length of time, in milliseconds; one without an end goes on. */
export interface Time {
  from: number;
  to?: number;
}

export interface Row {
  /** The step; of a row of a host, the host and the number of the row. */
  step: string;
  /** What the row is called, if that is not the step. */
  label?: string;
  spans: Span[];
  /** When the run in flight must end. */
  deadline?: number;
}

const time = (text: string | undefined): number => (text === undefined ? NaN : Date.parse(text));

/** Where a run has begun; the start of a run under an old version is not known. */
export const startOf = (run: RunRecord): number => time(run.startedAt ?? run.endedAt);
export const endOf = (run: RunRecord, now: number): number => (run.endedAt === undefined ? Math.max(now, startOf(run)) : time(run.endedAt));

function kindOf(run: RunRecord): Kind {
  if (run.endedAt === undefined) return "running";
  switch (run.outcome) {
    case "done":
    case "expired":
    case "returned":
    case "failed":
      return run.outcome;
    case "rejected":
      return "failed";
  }
  return "other";
}

/** The run that a step's view has: it may be newer than the recorded ones. */
export function latestRun(name: string, step: Step): RunRecord | undefined {
  if (step.run === 0 || !step.startedAt) return undefined;
  const run: RunRecord = { step: name, run: step.run, turn: step.turn, startedAt: step.startedAt };
  if (step.direction) run.direction = step.direction;
  if (step.readyAt && time(step.readyAt) <= time(step.startedAt)) run.readyAt = step.readyAt;
  if (step.phase === "running") {
    if (step.lockedBy) run.holder = step.lockedBy;
    return run;
  }
  if (step.endedAt) run.endedAt = step.endedAt;
  if (step.outcome) run.outcome = step.outcome;
  if (step.outcome !== "done" && step.lastError) run.error = [step.lastError.code, step.lastError.message].filter(Boolean).join(": ");
  return run;
}

/** The recorded runs by step, in their order, with the latest run of each step as its view has it. */
export function runsByStep(recorded: readonly RunRecord[], steps: ReadonlyMap<string, Step>): Map<string, RunRecord[]> {
  const found = new Map<string, Map<number, RunRecord>>();
  for (const run of recorded) {
    const of = found.get(run.step) ?? new Map<number, RunRecord>();
    of.set(run.run, run);
    found.set(run.step, of);
  }
  for (const [name, step] of steps) {
    const run = latestRun(name, step);
    const known = found.get(name)?.get(step.run);
    // A record that has ended is final. The view may have an end that the record lacks.
    if (run && (!known || (known.endedAt === undefined && run.endedAt !== undefined))) {
      const of = found.get(name) ?? new Map<number, RunRecord>();
      of.set(run.run, { ...known, ...run });
      found.set(name, of);
    }
  }
  return new Map([...found].map(([name, of]) => [name, [...of.values()].sort((a, b) => a.run - b.run)]));
}

/** The row of a step. now is the server's time. parked has the times in which the step was parked, in order; the last may go on. */
export function rowOf(name: string, step: Step | undefined, runs: readonly RunRecord[], now: number, parked: readonly Time[] = []): Row {
  const row: Row = { step: name, spans: [] };
  const add = (kind: Kind, from: number, to: number, undo: boolean, run?: RunRecord) => {
    if (!Number.isNaN(from) && !Number.isNaN(to) && (to > from || run)) row.spans.push({ kind, from, to: Math.max(from, to), undo, ...(run && { run }) });
  };
  runs.forEach((run, i) => {
    const undo = run.direction === "undo";
    const before = runs[i - 1];
    const ready = time(run.readyAt);
    if (before?.endedAt !== undefined && before.outcome !== "done" && before.direction === run.direction) {
      let from = time(before.endedAt);
      const to = Number.isNaN(ready) ? startOf(run) : ready;
      for (const part of parked) {
        if (part.from >= to || (part.to ?? Infinity) <= from) continue;
        add("wait", from, Math.max(from, part.from), undo);
        add("parked", Math.max(from, part.from), Math.min(to, part.to ?? to), undo);
        from = Math.min(to, part.to ?? to);
      }
      add("wait", from, to, undo);
    }
    if (!Number.isNaN(ready)) add("ready", ready, startOf(run), undo);
    add(kindOf(run), startOf(run), endOf(run, now), undo, run);
  });
  if (!step) return row;
  const last = runs.at(-1);
  const undo = step.desired === "undone";
  const since = last ? endOf(last, now) : NaN;
  switch (step.phase) {
    case "running":
      if (step.lockedUntil && last) add("lock", endOf(last, now), time(step.lockedUntil), last.direction === "undo");
      if (step.completeBy) row.deadline = time(step.completeBy);
      break;
    case "ready":
      add("ready", time(step.readyAt), now, undo);
      break;
    case "parked": {
      const parkedAt = parked.at(-1)?.from;
      add("parked", Number.isNaN(since) ? (parkedAt ?? NaN) : Math.max(since, parkedAt ?? since), now, undo);
      break;
    }
    case "waiting":
      if (step.why?.reason === "backoff" && step.availableAt) add("backoff", since, time(step.availableAt), undo);
      break;
  }
  return row;
}

/** The host of a holder, such as h1 of host/h1/7f3a; other holders are what they are. */
export function hostOf(holder: string): string {
  return /^host\/([^/]+)\/./.exec(holder)?.[1] ?? holder;
}

/** The rows of hosts: the runs that each has carried out, in as many rows as it had runs at once. now is the server's time. */
export function rowsByHost(runs: ReadonlyMap<string, readonly RunRecord[]>, now: number): Row[] {
  const hosts = new Map<string, RunRecord[]>();
  for (const run of [...runs.values()].flat()) {
    if (Number.isNaN(startOf(run))) continue;
    const host = hostOf(run.holder ?? "");
    const of = hosts.get(host);
    if (of) of.push(run);
    else hosts.set(host, [run]);
  }
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  return [...hosts.keys()].sort((a, b) => Number(a === "") - Number(b === "") || compare(a, b)).flatMap((host) => {
    const rows: Row[] = [], ends: number[] = [];
    for (const run of hosts.get(host)!.sort((a, b) => startOf(a) - startOf(b) || a.run - b.run)) {
      const from = startOf(run), to = endOf(run, now);
      let at = ends.findIndex((end) => end <= from);
      if (at < 0) at = rows.push({ step: `${host} ${rows.length + 1}`, label: rows.length === 0 ? host || "not recorded" : "", spans: [] }) - 1;
      ends[at] = to;
      rows[at]!.spans.push({ kind: kindOf(run), from, to, undo: run.direction === "undo", run });
    }
    return rows;
  });
}

/** A part of the scale. A folded one has a fixed width, whatever its length. */
export interface Piece {
  from: number;
  to: number;
  folded: boolean;
  x: number;
  width: number;
}

export interface Scale {
  from: number;
  to: number;
  pieces: Piece[];
  x: (t: number) => number;
  /** The time at a place. */
  at: (x: number) => number;
}

export const foldWidth = 34;
const mostFolds = 12;
/** Shorter times are not folded, in milliseconds. */
const leastFold = 1000;
/** Idle time is folded if it is longer than this part of the time in which runs are in flight. */
const foldFrom = 0.25;

/** The times in which a run is in flight, in order and without overlaps. */
export function busyTimes(rows: readonly Row[], from: number, to: number): [number, number][] {
  const spans = rows
    .flatMap((row) => row.spans)
    .filter((span) => span.run && span.to >= from && span.from <= to)
    .map((span): [number, number] => [Math.max(span.from, from), Math.min(span.to, to)])
    .sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [start, end] of spans) {
    const last = merged.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

/** A scale from a time to another on a width in pixels. */
export function scaleOf(rows: readonly Row[], from: number, to: number, width: number): Scale {
  if (!(to > from)) to = from + 1;
  const busy = busyTimes(rows, from, to);
  const edges: [number, number][] = [[from, from], ...busy, [to, to]];
  const gaps = edges
    .slice(1)
    .map((next, i): [number, number] => [edges[i]![1], next[0]])
    .filter(([a, b]) => b > a)
    .sort((a, b) => b[1] - b[0] - (a[1] - a[0]));
  // The longest first: each fold leaves more room for the rest.
  const busyTime = busy.reduce((sum, [a, b]) => sum + b - a, 0);
  let rest = to - from;
  const folds: [number, number][] = [];
  const room = Math.min(mostFolds, Math.floor((0.5 * width) / foldWidth));
  for (const [a, b] of gaps) {
    const shown = ((b - a) * (width - folds.length * foldWidth)) / rest;
    if (folds.length >= room || b - a < leastFold || busy.length === 0 || b - a <= foldFrom * busyTime || shown < 2 * foldWidth) break;
    folds.push([a, b]);
    rest -= b - a;
  }
  // A margin beside each fold keeps it from touching a run.
  const margin = rest / 50;
  for (const fold of folds) {
    const [a, b] = fold;
    const most = Math.min(margin, (b - a) / 4);
    if (a !== from) fold[0] += most;
    if (b !== to) fold[1] -= most;
    rest += b - a - (fold[1] - fold[0]);
  }
  folds.sort((a, b) => a[0] - b[0]);
  const open = width - folds.length * foldWidth;
  const pieces: Piece[] = [];
  let x = 0, at = from;
  const put = (end: number, folded: boolean) => {
    if (end <= at) return;
    const w = folded ? foldWidth : (open * (end - at)) / Math.max(rest, 1e-9);
    pieces.push({ from: at, to: end, folded, x, width: w });
    x += w;
    at = end;
  };
  for (const [a, b] of folds) {
    put(a, false);
    put(b, true);
  }
  put(to, false);
  const pieceAt = (found: (p: Piece) => boolean) => pieces.find(found) ?? pieces.at(-1)!;
  return {
    from, to, pieces,
    x: (t) => {
      if (t <= from) return 0;
      if (t >= to) return width;
      const p = pieceAt((p) => t <= p.to);
      return p.x + (p.width * (t - p.from)) / (p.to - p.from);
    },
    at: (px) => {
      const p = pieceAt((p) => px <= p.x + p.width);
      return Math.min(Math.max(p.from + ((px - p.x) / p.width) * (p.to - p.from), from), to);
    },
  };
}

/** The whole time of a job's rows, with a margin, so that nothing touches the edge. */
export function wholeTime(rows: readonly Row[], begin: number, now: number, open: boolean): [number, number] {
  let from = begin, to = open ? now : -Infinity;
  for (const row of rows) {
    for (const span of row.spans) {
      from = Math.min(from, span.from);
      to = Math.max(to, span.kind === "lock" || span.kind === "backoff" ? Math.min(span.to, now + (now - from) / 4) : span.to);
    }
  }
  if (!(to > from)) to = from + 1000;
  return [from, to + Math.max((to - from) / 100, 1)];
}

/** The part of the whole time that is nearest to a range: inside it, in whole milliseconds, and one long at least. */
export function partOf([a, b]: [number, number], whole: [number, number]): [number, number] {
  const begin = Math.floor(whole[0]), end = Math.ceil(whole[1]);
  const length = Math.min(Math.max(Math.round(b - a), 1), end - begin);
  const from = Math.min(Math.max(Math.round(a), begin), end - length);
  return [from, from + length];
}

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 172800e3, 604800e3];

/** About the width of a label, in pixels: none begins so near to the end. */
const labelRoom = 56;

export interface Tick {
  t: number;
  x: number;
  label: string;
}

/** Round times along the scale, at least so many pixels apart. zone is the offset of the local time from UTC, in minutes. */
export function ticksOf(scale: Scale, apart: number, zone: number): Tick[] {
  const ticks: Tick[] = [];
  const last = scale.pieces.at(-1);
  const end = last ? last.x + last.width : 0;
  let free = 0, day = "";
  for (const p of scale.pieces) {
    if (p.folded || p.width < apart / 2) continue;
    const step = steps.find((s) => (s * p.width) / (p.to - p.from) >= apart) ?? steps.at(-1)!;
    const shift = zone * 60e3;
    for (let t = Math.ceil((p.from + shift) / step) * step - shift; t <= p.to; t += step) {
      const x = scale.x(t);
      if (x < free || x + labelRoom > end) continue;
      const local = new Date(t + shift).toISOString();
      const clock = step < 1000 ? local.slice(11, 23) : step < 60e3 ? local.slice(11, 19) : local.slice(11, 16);
      const newDay = day !== "" && day !== local.slice(0, 10);
      day = local.slice(0, 10);
      ticks.push({ t, x, label: newDay ? `${local.slice(5, 10)} ${clock}` : clock });
      free = x + apart;
    }
  }
  return ticks;
}
