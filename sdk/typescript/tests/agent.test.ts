// Agents, runs, reports, JSON, clocks: what needs no server.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, Cancelled, Failed, NoEffect, Rejected, RetryAfter, parse, stringify, testRun } from "perdure";

import { type Outcome, reportOf } from "#internal/agent";
import { Backoff, left, millis, reached, sleep } from "#internal/clock";

function report(outcome: Outcome, reason?: "stopped" | "draining"): Record<string, unknown> {
  const run = testRun({ job: "job_1", step: "s", run: 3 });
  if (reason) run.cancel(reason);
  const { job, step, run: number, ...rest } = parse(reportOf(run, outcome)) as Record<string, unknown>;
  assert.deepEqual([job, step, number], ["job_1", "s", 3]);
  return rest;
}

test("integers keep their digits", () => {
  for (const text of [
    '{"a":12345678901234567890,"b":-9007199254740993,"c":9007199254740991,"d":0.1,"e":1e21}',
    '["12345678901234567890","\\"12345678901234567890","\\\\",12345678901234567890]',
    '"\\\\\\" 12345678901234567890"', "12345678901234567890", '{"12345678901234567890":[]}',
  ]) {
    assert.equal(stringify(parse(text)), text.replace("1e21", "1e+21"));
  }
  assert.deepEqual(parse('{"big":12345678901234567890,"small":12}'), { big: 12345678901234567890n, small: 12 });
  for (const text of ["", "{", "12345678901234567890x", '"12345678901234567890']) assert.throws(() => parse(text), SyntaxError);
  assert.equal(stringify(undefined), "null");
  for (const value of [NaN, [Infinity], () => 1]) assert.throws(() => stringify(value), TypeError);
  const long = JSON.stringify("x".repeat(1 << 20) + '\\"'.repeat(1000) + "1234567890123456789");
  assert.equal(stringify(parse(long)), long);
});

test("an agent's two directions", async () => {
  const undone: unknown[] = [];
  const agent = new Agent("a")
    .handle<number, { doubled: number }>("x", {
      do: (input) => ({ doubled: input * 2 }),
      undo: (input, output, run) => { undone.push([input, output, run.doKey]); },
    })
    .handle<null, number>("half", { do: () => 1 });
  assert.deepEqual(await agent.execute(testRun({ action: "x", input: 2 })), { doubled: 4 });
  await agent.execute(testRun({ action: "x", input: 2, direction: "undo", doKey: "k" }));
  assert.deepEqual(undone, [[2, null, "k"]]);
  await assert.rejects(agent.execute(testRun({ action: "half", direction: "undo" })), { code: "noUndo", noEffect: true, message: /no undo for "half"/ });
  await assert.rejects(agent.execute(testRun({ action: "other" })), { code: "noAction", noEffect: true, message: /; it has half, x$/ });
  const many = new Agent("many");
  for (let i = 10; i < 22; i++) many.handle(`a${i}`, { do: () => 1 });
  await assert.rejects(many.execute(testRun({ action: "other" })), { message: /it has a10, .*, a19, 2 more$/ });
  assert.throws(() => agent.handle("x", { do: () => 1 }), TypeError);
  for (const wrong of [{}, null, { do: 3 }, { do: () => 1, undo: 3 }]) assert.throws(() => agent.handle("y", wrong as never), TypeError);
  for (const wrong of [{ do: (_input: unknown, _output: unknown, _run: unknown) => 1 }, { do: () => 1, undo: (_a: 1, _b: 2, _c: 3, _d: 4) => {} }]) {
    assert.throws(() => agent.handle("y", wrong as never), { name: "TypeError", message: /is called with \(input/ });
  }
  new Agent("b").handle("y", { do: (_input, _run, ..._more: unknown[]) => 1, undo: () => {} });
  assert.throws(() => agent.handle("", { do: () => 1 }), TypeError);
  assert.deepEqual(agent.actions, ["x", "half"]);
  for (const name of ["", "a".repeat(129), "a b", "-a", "a/b", "ä", "a\n"]) assert.throws(() => new Agent(name), RangeError);
  assert.throws(() => new Agent("a", { slots: 0 }), RangeError);
});

test("a run", async () => {
  const run = testRun({ direction: "undo", doKey: "d", key: "k", run: 7 });
  assert.ok(run.remainingMs() > 0 && run.remainingMs() <= 60_000);
  assert.equal(run.headers()["Perdure-Do-Key"], "d");
  assert.equal(run.headers()["Perdure-Run"], "7");
  run.check();
  assert.throws(() => run.progress("x".repeat(5000)), RangeError);
  run.cancel("stopped");
  run.cancel("timeUp"); // the first reason stands
  assert.equal(run.reason, "stopped");
  assert.equal(run.remainingMs(), 0);
  assert.throws(() => run.check(), Cancelled);
  await assert.rejects(run.sleep(60_000), Cancelled);
});

test("reports", () => {
  assert.deepEqual(report({ output: undefined }), { outcome: "done" });
  assert.deepEqual(report({ output: { n: 2n ** 70n } }), { outcome: "done", output: { n: 2n ** 70n } });
  assert.equal(report({ output: 1 }, "stopped").outcome, "done"); // what is done is done
  const cycle: unknown[] = [];
  cycle.push(cycle);
  for (const output of [NaN, cycle, () => 1]) { // F047
    assert.equal((report({ output }).error as { code: string }).code, "outputInvalid");
  }
  assert.equal((report({ output: "x".repeat(1 << 20) }).error as { code: string }).code, "outputTooLarge");
  for (const [error, want] of [
    [new Failed("m", { code: "c" }), { outcome: "failed", error: { message: "m", code: "c" } }],
    [new Rejected("m"), { outcome: "rejected", error: { message: "m" } }],
    [new NoEffect("m"), { outcome: "failed", error: { message: "m" }, effect: "none" }],
    [new RetryAfter(90_000, "m"), { outcome: "failed", error: { message: "m", retryAfter: "90000ms" } }],
    [new RetryAfter(1e12, "m"), { outcome: "failed", error: { message: "m", retryAfter: "86400000ms" } }],
    [new TypeError("m"), { outcome: "failed", error: { message: "m", code: "TypeError" } }],
    [new Error("m"), { outcome: "failed", error: { message: "m" } }],
    [Object.assign(new Error("m"), { code: "ECONNREFUSED" }), { outcome: "failed", error: { message: "m", code: "ECONNREFUSED" } }],
    ["a\0b\ud800", { outcome: "failed", error: { message: "a\ufffdb\ufffd" } }],
    [undefined, { outcome: "failed", error: { message: "undefined" } }],
    [Object.create(null), { outcome: "failed", error: { message: "an error that cannot be shown" } }],
  ] as const) {
    assert.deepEqual(report({ error }), want);
  }
  assert.equal((report({ error: new Cancelled("stopped") }, "stopped").error as { code: string }).code, "stopped");
  assert.equal(report({ error: new Cancelled("draining") }, "draining").effect, "unknown");
  assert.equal(report({ error: new NoEffect("m") }, "draining").effect, undefined);
});

test("clocks", async () => {
  const at = { mono: 10, wall: 1000 };
  assert.ok(reached(at, { mono: 10, wall: 0 }) && reached(at, { mono: 0, wall: 1000 })); // F039
  assert.ok(!reached(at, { mono: 9, wall: 999 }));
  assert.equal(left(at, { mono: 4, wall: 999 }), 1);
  const backoff = new Backoff(100, 1000);
  for (const bound of [100, 200, 400, 800, 1000, 1000]) {
    const drawn = backoff.draw();
    assert.ok(drawn >= bound / 2 && drawn <= bound, `${drawn} of ${bound}`);
  }
  assert.ok(backoff.draw(7000) >= 7500);
  assert.deepEqual([1500, -1, undefined, "5"].map(millis), [1500, 0, 0, 0]);
  const stop = new AbortController();
  const slept = sleep(2 ** 40, stop.signal); // beyond what a timer can
  stop.abort();
  assert.equal(await slept, false);
});
