// The test kit: steps in memory, and against a real server if PERDURE_BINARY names the program.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { test } from "node:test";

import { Agent, Cancelled, Failed, type JobDefinition, NoEffect, Rejected, RetryAfter } from "perdure";
import { checkStep, perdureBinary, startServer, testStep } from "perdure/testing";

import { VirtualClock } from "#internal/testing/clock";
import { durationMs } from "#internal/testing/duration";

interface Charge { amount: number }

/** A bank that knows repetitions, unless it is told to forget them. */
class Bank {
  readonly charges = new Map<string, number>();
  readonly calls: unknown[] = [];
  down: Error[] = [];
  #forgetful = 0;

  agent({ forgetful = false, leaky = false } = {}): Agent {
    return new Agent("payments").handle<Charge, { id: string }>("charge", {
      do: async (input, run) => {
        this.calls.push([run.direction, run.number, run.key]);
        const error = this.down.shift();
        if (error) throw error;
        await run.sleep(1_000);
        this.charges.set(forgetful ? `${run.key}#${this.#forgetful++}` : run.key, input.amount);
        await run.sleep(500);
        return { id: run.key };
      },
      undo: async (input, output, run) => {
        this.calls.push([run.direction, run.number, run.key, run.doKey, input.amount, output]);
        await run.sleep(20);
        if (leaky && output === null) return; // it goes by the output, which may never have arrived
        this.charges.delete(run.doKey);
      },
    });
  }
}

test("a step is done and undone, in no real time", async () => {
  const bank = new Bank();
  const step = testStep(bank.agent(), { input: { amount: 5 } });
  assert.equal(step.current, "undone");
  const done = await step.do();
  assert.deepEqual([done.outcome, done.output, done.current], ["done", { id: `${step.job}/charge/1` }, "done"]);
  assert.deepEqual([...bank.charges], [[`${step.job}/charge/1`, 5]]);
  await assert.rejects(step.do(), /is done already/);
  const undone = await step.undo();
  assert.deepEqual([undone.outcome, undone.current, bank.charges.size], ["done", "undone", 0]);
  await assert.rejects(step.undo(), /is undone already/);
  await step.do();
  assert.deepEqual(bank.calls, [
    ["do", 1, `${step.job}/charge/1`],
    ["undo", 2, `${step.job}/charge/2`, `${step.job}/charge/1`, 5, { id: `${step.job}/charge/1` }],
    ["do", 3, `${step.job}/charge/3`],
  ]);
  assert.equal(step.elapsedMs, 3_020);
});

test("failures are repeated under one key, after the pauses of the definition", async () => {
  const bank = new Bank();
  bank.down = [new Error("down"), new RetryAfter(3_600_000, "later"), new NoEffect("nothing", { code: "none" })];
  const step = testStep(bank.agent(), { input: { amount: 5 }, retry: { attempts: 4, backoff: "2s", maxBackoff: "3s" } });
  const began = performance.now();
  const turn = await step.do();
  assert.ok(performance.now() - began < 2_000);
  assert.deepEqual(turn.runs.map((run) => [run.outcome, run.startedAt, run.error?.message]),
    [["failed", 0, "down"], ["failed", 2_000, "later"], ["failed", 3_602_000, "nothing"], ["done", 3_605_000, undefined]]);
  assert.equal(new Set(turn.runs.map((run) => run.key)).size, 1);

  bank.down = [new Error("1"), new Error("2"), new Error("3")];
  const failing = testStep(bank.agent(), { input: { amount: 5 }, retry: { attempts: 2 } });
  const failed = await failing.do();
  assert.deepEqual([failed.outcome, failed.runs.length, failed.current], ["failed", 2, "unsure"]);
  assert.equal((await failing.do()).outcome, "done"); // resumed: the same turn
  assert.equal(new Set(failing.runs.map((run) => run.key)).size, 1);

  for (const [error, current, runs] of [
    [new Rejected("no"), "unsure", 1], [new Rejected("no", { noEffect: true }), "undone", 1], [new Failed("no", { code: "fatal" }), "unsure", 1],
  ] as const) {
    bank.down = [error];
    const turn = await testStep(bank.agent(), { input: { amount: 5 }, retry: { notOn: ["fatal"] } }).do();
    assert.deepEqual([turn.current, turn.runs.length, turn.error?.message], [current, runs, "no"]);
  }
});

test("faults", async () => {
  const bank = new Bank();
  const step = testStep(bank.agent(), { input: { amount: 5 }, completeWithin: "1m" });
  const turn = await step.do({ faults: ["crashBefore", "crashAfter", "timeUp", "draining"] });
  assert.deepEqual(turn.runs.map((run) => run.outcome), ["expired", "expired", "expired", "returned", "done"]);
  assert.deepEqual([bank.calls.length, bank.charges.size], [4, 1]);
  await assert.rejects(testStep(bank.agent(), { input: { amount: 5 } }).do({ faults: [null, "crashAfter"] }), /befell none/);

  const unsure = testStep(bank.agent(), { input: { amount: 6 } });
  assert.equal((await unsure.do({ attempts: 1, faults: ["crashAfter"] })).current, "unsure");
  await unsure.undo();
  assert.deepEqual([bank.calls.at(-1), bank.charges.size], [["undo", 2, `${unsure.job}/charge/2`, `${unsure.job}/charge/1`, 6, null], 2]);

  const turned = await testStep(bank.agent(), { input: { amount: 7 } }).do({ faults: ["stopped"] });
  assert.deepEqual([turned.outcome, turned.error?.code, turned.runs.length], ["failed", "stopped", 1]);
  await assert.rejects(testStep(bank.agent()).undo(), /call do\(\) first/);
});

test("a handler sees its time pass, and its signal abort", async () => {
  const seen: unknown[] = [];
  const agent = new Agent("a").handle("long", {
    async do(_, run) {
      run.progress({ left: run.remainingMs() });
      try {
        await Promise.all([run.sleep(20_000), run.sleep(90_000)]);
      } catch (e) {
        seen.push(e instanceof Cancelled && e.reason, run.remainingMs());
        throw e;
      }
    },
  });
  const step = testStep(agent, { completeWithin: "1m30s", retry: { attempts: 1 } });
  const turn = await step.do();
  assert.deepEqual([turn.outcome, turn.runs[0]?.progress, seen, step.elapsedMs], ["expired", [{ left: 90_000 }], ["timeUp", 0], 90_000]);

  const deaf = new Agent("b").handle("x", { do: () => new Promise(() => {}) });
  await assert.rejects(testStep(deaf, { patienceMs: 50 }).do({ faults: ["stopped"] }), /pass run\.signal on/);
  await assert.rejects(testStep(deaf, { patienceMs: 50 }).do(), /did not end within 50 ms/);
  const quick = await testStep(new Agent("c").handle("x", { do: () => 1 }), { retry: { attempts: 1 } }).do({ faults: ["timeUp"] });
  assert.equal(quick.outcome, "expired");
  const io = await testStep(new Agent("d").handle("x", { do: async (_, run) => { await pause(20); run.check(); return 1; } })).do();
  assert.equal(io.outcome, "done", "real waiting lets no virtual time pass");
});

test("what cannot be tested is refused", async () => {
  const two = new Agent("a").handle("x", { do: () => 1 }).handle("y", { do: () => ({ n: NaN }) });
  assert.throws(() => testStep(two), /has 2 actions/);
  assert.equal((await testStep(two, { action: "z" }).do()).error?.code, "noAction");
  const odd = testStep(two, { action: "y", retry: { attempts: 1 } });
  assert.equal((await odd.do()).error?.code, "outputInvalid");
  assert.equal((await odd.undo()).error?.code, "noUndo");
  assert.throws(() => testStep(two, { action: "x", completeWithin: "soon" }), /completeWithin: "soon" is no duration/);
  assert.throws(() => testStep(two, { action: "x", retry: { attempts: 0 } }), RangeError);
  await assert.rejects(testStep(two, { action: "x", input: () => 1 }).do(), /no JSON/);
  assert.deepEqual(["1h30m", "2d", "0.5s", "250ms"].map((text) => durationMs(text, "it")), [5_400_000, 172_800_000, 500, 250]);
});

test("a handler is checked", async () => {
  const bank = new Bank();
  const check = (agent: Agent, undo = true): Promise<void> =>
    checkStep(agent, { input: { amount: 5 }, effects: () => bank.charges.size, undo });
  await check(bank.agent());
  await assert.rejects(check(bank.agent({ forgetful: true })), /repeated because the process died before its report: 2 effects after the do, want 1/);
  bank.charges.clear();
  await assert.rejects(check(bank.agent({ leaky: true })), /whose report never came: 1 effect after the undo, want 0/);
  bank.charges.clear();
  await check(new Agent("x").handle("charge", { do: (_, run) => void bank.charges.set(run.key, 1) }), false);
  await assert.rejects(check(new Agent("x").handle("charge", { do: (_, run) => void bank.charges.set(run.key, 1) })), /no undo/);
});

test("virtual time", async () => {
  const clock = new VirtualClock();
  const order: string[] = [];
  clock.alarm(150, () => order.push("alarm"));
  await Promise.all([clock.sleep(200).then(() => order.push("b")), clock.sleep(100).then(() => order.push("a"))]);
  assert.deepEqual([order, clock.elapsed], [["a", "alarm", "b"], 200]);
});

const binary = perdureBinary();

test("jobs against a real server", { skip: !binary && "there is no program perdure" }, async (t) => {
  const order: JobDefinition = { type: "order", onFailure: "undo", steps: {
    reserve: { agent: "stock", undo: {} },
    charge: { agent: "payments", after: ["reserve"], with: { amount: 5 }, undo: {}, completeWithin: "30s", retry: { backoff: "10ms" } },
  } };

  await t.test("faults", async () => {
    await using server = await startServer();
    const stock = server.fake("stock");
    const bank = server.fake("payments", { heartbeatMs: 1_000, log: null });
    server.inject("charge", "crashBefore");
    server.inject("charge", "crashAfter", { runs: [2] });
    server.inject("charge", "late", { runs: [3] });
    server.inject("charge", "twice", { runs: [4] });
    const job = await server.submit(order, { key: "order-1" });
    await job.done();
    bank.once("charge");
    assert.ok(bank.attempts("charge") >= 2); // on a machine that is too busy, further runs may expire
    const refused = (): boolean => server.refused.some((r) => r.step === "charge" && r.run === 3 && (r.reason === "late" || r.reason === "stale"));
    for (let i = 0; i < 500 && !refused(); i++) await pause(20);
    assert.ok(refused(), JSON.stringify(server.refused));
    await (await job.undo()).undone();
    bank.gone("charge");
    stock.gone("reserve");
  });

  await t.test("a job that fails is undone", async () => {
    await using server = await startServer();
    const stock = server.fake("stock");
    server.fake("payments").fail("charge", 1, new Rejected("no", { noEffect: true }));
    const job = await server.submit(order);
    await assert.rejects(job.done(), /not done[^]*charge: settled, undone.*last error: no/);
    stock.gone("reserve");
    assert.equal(stock.attempts("reserve", "undo"), 1);
    await (await job.redo()).done();
    assert.equal(stock.net("reserve"), 1);
    assert.throws(() => stock.once("reserve"), /was done 2 times and undone 1 times/);
    assert.throws(() => stock.gone("reserve"), /was done 2 times/);
  });

  await t.test("parked, and a fault that is never met", async () => {
    const server = await startServer();
    server.fake("payments").on("charge", () => { throw new Rejected("no"); });
    const job = await server.submit({ type: "order", steps: { charge: { agent: "payments" }, other: { agent: "none", after: ["charge"] } } });
    await job.until("charge", "parked");
    await job.parked("charge");
    await assert.rejects(job.parked("other"), /parked: charge, want other/);
    await (await job.resume()).until("charge", "parked");
    server.inject("charge", "late", { direction: "undo" });
    const stuck = await server.submit({ type: "order", steps: { s: { agent: "none" } } });
    await assert.rejects(stuck.rest(), /waits for an agent that nothing carries: none[^]*s: ready, undone, wants done, run 0: no agent none/);
    await assert.rejects(server.stop(), /never met: late of undo run 1 of charge/);
    await assert.rejects(stuck.get(), { code: "unavailable" }, "the server has ended");
  });

  await t.test("patience", async () => {
    await using server = await startServer({ patienceMs: 300 });
    server.fake("slow").on("s", (run) => run.sleep(2_000));
    const slow = await server.submit({ type: "order", steps: { s: { agent: "slow" } } });
    await assert.rejects(slow.done(), /not at rest after 300 ms:\n.*waiting|running/);
    await server.client.wait(slow.id, { timeoutMs: 60_000 });
  });

  await t.test("a server that does not start", async () => {
    await assert.rejects(startServer({ binary: "/does/not/exist" }), /cannot be started/);
    await assert.rejects(startServer({ args: ["--no-such-flag"] }), /serve ended: \d+\n[^]*no-such-flag/);
  });
});
