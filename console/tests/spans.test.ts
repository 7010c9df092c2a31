import assert from "node:assert/strict";
import { test } from "node:test";
import { savedTimeline, shapesOf, titleOf } from "../src/timelinepicture.ts";
import { busyTimes, foldWidth, partOf, rowOf, rowsByHost, runsByStep, scaleOf, ticksOf, wholeTime, type Row, type Time } from "../src/spans.ts";
import type { RunRecord, Step } from "../src/types.ts";

const second = 1000;
const begin = Date.parse("2026-03-01T12:00:00Z");
const at = (s: number) => new Date(begin + s * second).toISOString();
const run = (n: number, from: number, to: number | undefined, more: Partial<RunRecord> = {}): RunRecord => ({
  step: "charge", run: n, turn: 1, direction: "do", startedAt: at(from), ...(to !== undefined && { endedAt: at(to), outcome: "done" as const }), ...more,
});
const step = (more: Partial<Step>): Step =>
  ({ agent: "a", action: "charge", current: "unsure", desired: "done", phase: "settled", run: 0, turn: 1, failures: 0, key: "k", ...more }) as Step;
const parts = (row: Row) => row.spans.map((s) => `${s.kind} ${(s.from - begin) / second}-${(s.to - begin) / second}${s.undo ? " undo" : ""}`);

test("a row has the runs, what a step waited for between them, and undo runs apart", () => {
  const runs = [
    run(1, 1, 3, { outcome: "failed", readyAt: at(0) }),
    run(2, 9, 12, { outcome: "expired", readyAt: at(7) }),
    run(3, 20, 22),
    run(4, 40, 41, { direction: "undo", turn: 2 }),
  ];
  assert.deepEqual(parts(rowOf("charge", step({ run: 4 }), runs, begin + 60 * second)), [
    "ready 0-1", "failed 1-3", "wait 3-7", "ready 7-9", "expired 9-12", "wait 12-20", "done 20-22", "done 40-41 undo",
  ]);
});

test("what is between two runs is parked time where the step was parked", () => {
  const runs = [run(1, 1, 3, { outcome: "rejected" }), run(2, 20, 22, { readyAt: at(15) }), run(3, 40, 41, { outcome: "failed" })];
  const from = (s: number) => begin + s * second;
  const row = (parked: Time[]) => parts(rowOf("charge", step({ run: 3 }), [runs[0]!, runs[1]!], begin + 60 * second, parked));
  assert.deepEqual(row([{ from: from(3), to: from(15) }]), ["failed 1-3", "parked 3-15", "ready 15-20", "done 20-22"]);
  assert.deepEqual(row([{ from: from(5), to: from(10) }]), ["failed 1-3", "wait 3-5", "parked 5-10", "wait 10-15", "ready 15-20", "done 20-22"]);
  assert.deepEqual(row([{ from: from(5) }]), ["failed 1-3", "wait 3-5", "parked 5-15", "ready 15-20", "done 20-22"], "an alert that is still open");
  assert.deepEqual(row([{ from: from(30), to: from(35) }]), ["failed 1-3", "wait 3-15", "ready 15-20", "done 20-22"], "another time");
});

test("a step that is not settled has a part up to now, or up to what it waits for", () => {
  const now = begin + 100 * second;
  const failed = [run(1, 1, 3, { outcome: "rejected" })];
  const last = (s: Partial<Step>, runs = failed, parked: Time[] = []) => parts(rowOf("charge", step({ run: 1, ...s }), runs, now, parked)).at(-1);
  assert.equal(last({ phase: "parked" }), "parked 3-100");
  assert.equal(last({ phase: "parked" }, failed, [{ from: begin + 50 * second }]), "parked 50-100");
  assert.equal(last({ phase: "parked", run: 0 }, []), undefined);
  assert.equal(last({ phase: "waiting", availableAt: at(130), why: { reason: "backoff", text: "" } }), "backoff 3-130");
  assert.equal(last({ phase: "waiting" }), "failed 1-3");
  assert.equal(last({ phase: "ready", readyAt: at(90) }), "ready 90-100");
  const running = rowOf("charge", step({ phase: "running", run: 1, lockedUntil: at(115), completeBy: at(160) }), [run(1, 90, undefined)], now);
  assert.deepEqual(parts(running), ["running 90-100", "lock 100-115"]);
  assert.equal(running.deadline, begin + 160 * second);
});

test("a run whose start, direction and outcome are not known is shown at its end", () => {
  const row = rowOf("charge", step({ run: 1 }), [{ step: "charge", run: 1, endedAt: at(5) }, { step: "charge", run: 2, startedAt: at(6), endedAt: at(7), outcome: "paused" as never }], begin);
  assert.deepEqual(parts(row), ["other 5-5", "wait 5-6", "other 6-7"]);
  assert.match(titleOf("charge", row.spans[0]!, begin), /the start is not known/);
});

test("the latest run of a step's view is added to the recorded ones, and ends the run that was recorded in flight", () => {
  const steps = new Map([
    ["charge", step({ phase: "settled", run: 2, direction: "do", startedAt: at(8), endedAt: at(9), outcome: "done" })],
    ["ship", step({ phase: "running", run: 1, direction: "do", startedAt: at(9), readyAt: at(8), lockedBy: "h" })],
    ["mail", step({ phase: "waiting" })],
    ["pack", step({ run: 1, startedAt: at(1), endedAt: at(2), outcome: "failed", lastError: { code: "busy", message: "later" } })],
  ]);
  const by = runsByStep([run(1, 1, 3, { outcome: "failed", error: "503" }), run(2, 8, undefined)], steps);
  assert.deepEqual(by.get("charge")!.map((r) => [r.run, r.outcome, r.error]), [[1, "failed", "503"], [2, "done", undefined]]);
  assert.deepEqual(by.get("ship"), [{ step: "ship", run: 1, turn: 1, direction: "do", startedAt: at(9), readyAt: at(8), holder: "h" }]);
  assert.equal(by.get("pack")![0]!.error, "busy: later");
  assert.equal(by.has("mail"), false);
  const ended = runsByStep([run(1, 1, 3, { outcome: "returned" })], new Map([["charge", step({ run: 1, phase: "running", startedAt: at(1) })]]));
  assert.equal(ended.get("charge")![0]!.outcome, "returned", "a record that has ended is final");
});

const rowWith = (...times: [number, number][]): Row => ({ step: "a", spans: times.map(([from, to], i) => ({ kind: "done", from: begin + from * second, to: begin + to * second, undo: false, run: run(i + 1, from, to) })) });

test("idle time is folded, and time goes forward everywhere on the scale", () => {
  const rows = [rowWith([0, 10], [8, 20], [3600, 3620]), rowWith([15, 30])];
  assert.deepEqual(busyTimes(rows, begin, begin + 4000 * second).map(([a, b]) => [(a - begin) / second, (b - begin) / second]), [[0, 30], [3600, 3620]]);
  const scale = scaleOf(rows, begin, begin + 7200 * second, 800);
  const folds = scale.pieces.filter((p) => p.folded);
  assert.equal(folds.length, 2, "between the runs, and after them");
  for (const p of folds) assert.equal(p.width, foldWidth);
  assert.ok(Math.abs(scale.pieces.reduce((sum, p) => sum + p.width, 0) - 800) < 1e-6);
  let before = -1;
  for (let t = begin; t <= begin + 7200 * second; t += 7 * second) {
    const x = scale.x(t);
    assert.ok(x >= before && x >= 0 && x <= 800);
    assert.ok(Math.abs(scale.at(x) - t) < 60 * second);
    before = x;
  }
  assert.ok(scale.x(begin + 30 * second) - scale.x(begin) > 300, "the runs have the room");
});

test("a scale without idle time, without runs, or of no length has one piece", () => {
  assert.equal(scaleOf([rowWith([0, 100])], begin, begin + 100 * second, 500).pieces.length, 1);
  assert.equal(scaleOf([], begin, begin + 100 * second, 500).pieces.length, 1);
  const instant = scaleOf([rowWith([0, 0])], begin, begin, 500);
  assert.ok(instant.x(begin) >= 0 && Number.isFinite(instant.at(250)));
  const many = scaleOf([rowWith(...Array.from({ length: 100 }, (_, i): [number, number] => [i * 1000, i * 1000 + 1]))], begin, begin + 100_000 * second, 900);
  assert.ok(many.pieces.filter((p) => p.folded).length <= 12);
});

test("the whole time begins with the job, and does not reach for a distant deadline", () => {
  const row = rowWith([10, 20]);
  assert.deepEqual(wholeTime([row], begin, begin + 20 * second, false), [begin, begin + 20.2 * second]);
  row.spans.push({ kind: "backoff", from: begin + 20 * second, to: begin + 36_000 * second, undo: false });
  assert.ok(wholeTime([row], begin, begin + 40 * second, true)[1] < begin + 60 * second);
  const [from, to] = wholeTime([], begin, begin, false);
  assert.ok(to > from);
});

test("a part is inside the whole time, in whole milliseconds, and one long at least", () => {
  assert.deepEqual(partOf([20, 60], [0, 100]), [20, 60]);
  assert.deepEqual(partOf([-10, 30], [0, 100]), [0, 40]);
  assert.deepEqual(partOf([90, 130], [0, 100]), [60, 100]);
  assert.deepEqual(partOf([0, 400], [0, 100]), [0, 100]);
  assert.deepEqual(partOf([2.4, 2.6], [0, 5.7]), [2, 3], "runs of a few milliseconds can be zoomed");
  assert.deepEqual(partOf([5.6, 5.7], [0, 5.7]), [5, 6]);
  assert.deepEqual(partOf([2, 2], [2, 2.5]), [2, 3]);
});

test("ticks are round times, apart from each other, with the day when it changes", () => {
  const scale = scaleOf([rowWith([0, 100])], begin, begin + 100 * second, 800);
  const ticks = ticksOf(scale, 90, 0);
  assert.ok(ticks.length >= 4 && ticks.length <= 9);
  for (const [i, tick] of ticks.entries()) {
    assert.equal(tick.t % second, 0);
    assert.match(tick.label, /^12:0[01]:\d\d$/);
    if (i > 0) assert.ok(tick.x - ticks[i - 1]!.x >= 90 - 1e-6);
  }
  const days = ticksOf(scaleOf([rowWith([0, 200_000])], begin, begin + 200_000 * second, 800), 90, 0).map((t) => t.label);
  assert.ok(days.some((label) => /^03-02 /.test(label)), days.join());
  assert.match(ticksOf(scale, 90, 120)[0]!.label, /^14:00/, "in local time");
});

test("a short run is visible, and parts outside of the scale are left out", () => {
  const row = rowWith([50, 50], [500, 510]);
  const shapes = shapesOf(row, scaleOf([row], begin, begin + 100 * second, 800), false, begin);
  assert.equal(shapes.length, 1);
  assert.equal(shapes[0]!.width, 3);
  const undo: Row = { step: "a", spans: [{ ...row.spans[0]!, undo: true }, row.spans[0]!] };
  const [lower, upper] = shapesOf(undo, scaleOf([undo], begin, begin + 100 * second, 800), true, begin);
  assert.ok(lower!.y > upper!.y, "undo runs are below do runs");
});

test("a saved picture has every row with a run, its texts escaped, and no part of the page", () => {
  const hostile = `<script>"&'</script>\u0001`;
  const rows: Row[] = [{ ...rowWith([0, 10], [90, 100]), step: hostile }, { step: "none", spans: [] }];
  rows[0]!.spans.push({ kind: "failed", from: begin, to: begin + second, undo: true, run: run(3, 0, 1, { outcome: "failed", direction: "undo", error: hostile }) });
  const scale = scaleOf(rows, begin, begin + 100 * second, 600);
  const { svg: text } = savedTimeline(rows, scale, { title: hostile, state: "done → done, settled", date: "2026-03-01", ticks: ticksOf(scale, 90, 0), width: 800, names: 184, lanes: true });
  assert.ok(text.startsWith("<svg xmlns=") && text.endsWith("</svg>"));
  assert.ok(!text.includes("<script") && !text.includes("\u0001") && text.includes("&#60;script"));
  assert.ok(!text.includes("class=") && !text.includes("NaN") && text.includes("1 more rows have no run"));
  assert.equal((text.match(/<g[ >]/g) ?? []).length, (text.match(/<\/g>/g) ?? []).length);
});

test("the runs of a host are in as many rows as it had runs at once, and hosts are in the order of their numbers", () => {
  const at = (s: number) => new Date(s * 1000).toISOString();
  const run = (step: string, n: number, holder: string, from: number, to?: number, direction: "do" | "undo" = "do"): RunRecord => ({ step, run: n, holder, direction, startedAt: at(from), ...(to !== undefined && { endedAt: at(to), outcome: "done" as const }) });
  const runs = new Map([
    ["a", [run("a", 1, "host/h10/x", 0, 5), run("a", 2, "host/h2/x", 6, 8, "undo")]],
    ["b", [run("b", 1, "host/h2/x", 1, 7)]],
    ["c", [run("c", 1, "host/h2/y", 8)]],
    ["d", [run("d", 1, "till-1", 2, 3)]],
  ]);
  const rows = rowsByHost(runs, 9000);
  assert.deepEqual(rows.map((row) => row.label), ["h2", "", "h10", "till-1"]);
  assert.deepEqual(rows.map((row) => row.spans.map((part) => `${part.run!.step} ${part.kind}${part.undo ? " undo" : ""} ${part.from / 1000}-${part.to / 1000}`)), [["b done 1-7", "c running 8-9"], ["a done undo 6-8"], ["a done 0-5"], ["d done 2-3"]]);
});
