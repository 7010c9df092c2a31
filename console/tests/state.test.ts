import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { alertMark, jobMark, progressText, stepMark, whyText } from "../src/state.ts";
import type { Job, Step } from "../src/types.ts";

const now = Date.parse("2026-11-27T14:00:00Z");
const step = (fields: Partial<Step>): Step => ({
  action: "charge", agent: "payments", current: "undone", desired: "done", phase: "waiting", direction: "do", run: 0, turn: 1, failures: 0, key: "k", was: "undone", ...fields,
}) as Step;
const job = (fields: Partial<Job>): Job => ({
  id: "job_1", type: "order", current: "unsure", desired: "done", phase: "running", priority: 0, unsettled: 1, submittedAt: "", updatedAt: "", ...fields,
}) as Job;

// The signs of docs/cli.md, with the rules of cmd/perdure/row.go.
test("steps have the signs of the command line", () => {
  const cases: [Partial<Step>, string, string][] = [
    [{ phase: "waiting" }, "○ waiting", "calm"],
    [{ phase: "ready" }, "◌ ready", "busy"],
    [{ phase: "running", run: 1 }, "● running", "busy"],
    [{ phase: "running", run: 1, direction: "undo" }, "◐ undoing", "busy"],
    [{ phase: "waiting", failures: 1, why: { reason: "backoff", text: "x" } }, "↻ waiting", "warn"],
    [{ phase: "waiting", why: { reason: "approval", text: "x" } }, "? approval", "warn"],
    [{ phase: "parked" }, "■ parked", "bad"],
    [{ phase: "settled", current: "done", run: 1 }, "✓ done", "good"],
    [{ phase: "settled", current: "undone", run: 2 }, "↺ undone", "warn"],
    [{ phase: "settled", current: "undone" }, "· undone", "calm"],
    [{ phase: "settled", current: "unsure", run: 1 }, "? unsure", "bad"],
    [{ phase: "settled", current: "undone", run: 1, noUndo: true }, "· undone", "calm"],
    [{ phase: "settled", skipped: true }, "– skipped", "calm"],
    [{ phase: "settled", skipped: true, desired: "undone", run: 2, direction: "undo" }, "↺ undone", "warn"],
    [{ phase: "settled", givenUp: true, current: "unsure", run: 1 }, "× given up", "bad"],
    [{ phase: "paused" as Step["phase"] }, "◇ paused", "calm"],
  ];
  for (const [fields, wanted, tone] of cases) {
    const mark = stepMark({}, step(fields), now);
    assert.deepEqual([`${mark.sign} ${mark.word}`, mark.tone], [wanted, tone], JSON.stringify(fields));
  }
});

// cmd/perdure writes the file from its own rules (TestRowsAreThoseOfTheConsole).
test("steps in all states are shown as the command line shows them", () => {
  const rows: { step: Step; sign: string; word: string; tone: string }[] = JSON.parse(readFileSync("../cmd/perdure/testdata/rows.json", "utf8"));
  assert.ok(rows.length > 100);
  for (const row of rows) {
    const mark = stepMark({}, row.step, now);
    // The console has room for the word that tells an approval from other waiting steps.
    const word = row.sign === "?" && row.word === "waiting" ? "approval" : row.word;
    assert.deepEqual([mark.sign, mark.word, mark.tone], [row.sign, word, row.tone || "calm"], JSON.stringify(row.step));
  }
});

test("states have the names of the definition", () => {
  const states = { done: "booked", undone: "free" };
  assert.equal(stepMark({ states }, step({ phase: "settled", current: "done" }), now).word, "booked");
  assert.equal(jobMark(job({ phase: "settled", current: "undone", states })).word, "free");
});

test("a running step says how much time is left, and its progress", () => {
  const mark = stepMark({}, step({ phase: "running", run: 3, lockedBy: "till-1", completeBy: "2026-11-27T14:00:30Z", progress: { done: 3, total: 10, message: "loading" } }), now);
  assert.equal(mark.detail, "run 3 by till-1, 30 s left, 3/10 loading");
  assert.equal(progressText({ done: 12345678901234567890n }), "12345678901234567890");
  assert.equal(progressText([1]), "");
});

test("reasons count down", () => {
  assert.equal(whyText(step({ why: { reason: "backoff", text: "again at 14:01, after 1 failure", until: "2026-11-27T14:01:00Z" } }), now), "again in 1 min, after 1 failure");
  assert.equal(whyText(step({ why: { reason: "notYet", text: "sleeps for another 2h0m0s", until: "2026-11-27T16:00:00Z" } }), now), "sleeps for another 2 h");
  assert.equal(whyText(step({ why: { reason: "notYet", text: "the job starts in 2h0m0s; to start it now: resume", until: "2026-11-27T16:00:00Z" } }), now), "the job starts in 2 h");
  assert.equal(whyText(step({ why: { reason: "approval", text: "waits for approval by a member of finance for another 3h: approve or reject it", until: new Date(now + 60_000).toISOString(), message: "Hotel", group: "finance" } }), now), "waits for approval by a member of finance for another 1 min: Hotel");
  assert.equal(whyText(step({ why: { reason: "signal", text: "waits for signal paid with key p1", signal: "paid", key: "p1" } }), now), "waits for signal paid with key p1");
  assert.equal(whyText(step({}), now), "");
});

test("jobs and alerts of a newer server are shown by their names", () => {
  assert.deepEqual([jobMark(job({ phase: "dreaming" as Job["phase"] })).word, jobMark(job({ phase: "settled", current: "half" as Job["current"] })).word], ["dreaming", "half"]);
  assert.deepEqual([alertMark("quota").word, alertMark("quota").tone, alertMark("parked").sign], ["quota", "calm", "■"]);
  for (const [fields, sign] of [[{ phase: "parked" }, "■"], [{ phase: "running" }, "●"], [{ phase: "running", desired: "undone" }, "◐"], [{ phase: "waiting" }, "○"], [{ phase: "settled", current: "done" }, "✓"], [{ phase: "settled", givenUp: { by: "anna" } }, "×"]] as [Partial<Job>, string][]) {
    assert.equal(jobMark(job(fields)).sign, sign, JSON.stringify(fields));
  }
});
