// The client and the agents against a real server: PERDURE_SERVER is its URL.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { Agent, Client, type Host, type Job, type JobDefinition, PerdureError, Rejected, atRest } from "perdure";

describe("a real server", { skip: !process.env.PERDURE_SERVER && "PERDURE_SERVER is not set" }, () => {
  const client = new Client("", { author: "test" });
  const name = `typescript-${randomUUID().slice(0, 8)}`;
  const effects = new Map<string, number | bigint>();
  let host: Host;

  interface Charge { amount: number | bigint }

  before(() => {
    host = client.host([new Agent(name).handle<Charge, { charged: number | bigint }>("charge", {
      do(input, run) {
        if (input.amount < 0) throw new Rejected("a negative amount", { code: "negative", noEffect: true });
        effects.set(run.key, input.amount);
        return { charged: input.amount };
      },
      undo: (_input, _output, run) => void effects.delete(run.doKey),
    })]);
    host.start();
  });
  after(() => host.drain(10_000));

  const definition = (amount: number | bigint = 5, more: Partial<JobDefinition> = {}): JobDefinition => ({
    type: name, input: { amount }, onFailure: "undo", ...more,
    steps: { charge: { agent: name, with: { amount: "${input.amount}" }, undo: {}, completeWithin: "30s" } },
  });
  const wait = (ref: string): Promise<Job> => client.wait(ref, { timeoutMs: 60_000 });

  test("done, undone, redone", async () => {
    const big = 12345678901234567890n;
    const { job, created } = await client.submit(definition(big, { key: name, labels: { a: "b" } }));
    assert.ok(created);
    assert.ok(!(await client.submit(definition(big, { key: name, labels: { a: "b" } }))).created);
    const done = await wait(name);
    assert.deepEqual([done.current, done.steps?.charge?.output], ["done", { charged: big }]);
    assert.deepEqual([...effects.values()], [big]);
    await client.undo(name, "changed my mind");
    assert.equal((await wait(job.id)).current, "undone");
    assert.equal(effects.size, 0);
    await client.redo(name);
    assert.equal((await wait(name)).current, "done");
    const step = await client.step(name, "charge");
    assert.deepEqual([step.name, step.job, step.output], ["charge", job.id, { charged: big }]);
    assert.ok(!(await client.submit(await client.definition(name))).created);
    assert.ok((await client.history(name).all()).some((e) => e.author === "test"));
    const keys = [];
    for await (const j of client.list({ type: name, labels: { a: "b" } })) keys.push(j.key);
    assert.deepEqual(keys, [name]);
    for await (const j of client.list({ type: name, phase: "parked" })) assert.fail(j.id);
  });

  test("large values", async () => {
    const large = new Client("", { author: "test", offload: true });
    interface Text { text: string; size: number }
    const carrier = large.host([new Agent(`${name}-large`).handle<Text, { turned: string; size: number }>("turn", {
      do: async (input) => ({ turned: `${(await large.loadArtifact(input.text)).toUpperCase()}!`, size: input.size }),
    })]);
    carrier.start();
    const text = "é".repeat(300 << 10);
    const job = { type: name, input: { text, size: text.length }, steps: { turn: { agent: `${name}-large`,
      with: { text: "${input.text}", size: "${input.size}" }, completeWithin: "1m" } } } satisfies JobDefinition;
    const key = `${name}-large`;
    assert.ok((await large.submit(job, { key })).created);
    assert.ok(!(await large.submit(job, { key })).created);
    const output = (await wait(key)).steps?.turn?.output as { turned: string; size: number };
    assert.equal(output.size, text.length);
    assert.equal(await large.loadArtifact(output.turned), `${text.toUpperCase()}!`);
    assert.equal(await large.loadArtifact(5), 5);
    const [many] = await large.submitAll([{ key: `${key}-2`, input: { text, size: 1 } }], job);
    assert.ok(many?.created);
    assert.equal((await wait(`${key}-2`)).current, "done");
    await assert.rejects(large.loadArtifact({ $artifact: `sha256:${"0".repeat(64)}`, size: 1, type: "application/json" }),
      (e) => e instanceof PerdureError && e.code === "notFound");
    await carrier.drain(10_000);
  });

  test("rejected", async () => {
    const job = await wait((await client.submit(definition(-1))).job.id);
    assert.ok(atRest(job));
    assert.deepEqual([job.current, job.steps?.charge?.lastError?.code], ["undone", "negative"]);
  });

  test("many", async () => {
    const jobs = Array.from({ length: 20 }, (_, i) => ({ key: `${name}-${i}`, input: { amount: i } }));
    const results = await client.submitAll([...jobs, { key: "no/slash" }], definition());
    assert.equal(results.pop()?.error?.code, "invalid");
    assert.ok(results.every((r) => r.created));
    for (const job of await Promise.all(jobs.map((j) => wait(j.key)))) assert.equal(job.current, "done");
  });

  test("refusals", async () => {
    await assert.rejects(client.submit("type: t\nsteps: {a: {agnet: http}}"),
      (e) => e instanceof PerdureError && e.code === "invalid" && e.errors[0]?.line === 2);
    // Of an object there are no lines; all faults are told, the deepest first.
    await assert.rejects(client.submit({ type: "no type", steps: { a: { agent: "x", aftr: [] } } } as never), (e) => e instanceof PerdureError &&
      /^\/steps\/a\/aftr: .*did you mean `after`.*; \/type: /.test(e.message) && !e.message.includes("line") && e.errors.every((f) => f.line === undefined));
    const many = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`s${i}`, { agent: "x", after: ["none"] }]));
    await assert.rejects(client.submit({ type: "t", steps: many }), { message: /; and 4 more$/ });
    await client.submit(definition(5, { key: `${name}c` }));
    await assert.rejects(client.submit(definition(6, { key: `${name}c` })), { code: "conflict" });
    await assert.rejects(client.get("order/1 %?"), { code: "notFound" });
    await assert.rejects(client.get(""), { code: "invalid" });
  });

  test("nobody runs the agent", async () => {
    await client.submit({ type: name, key: `${name}n`, steps: { s: { agent: `${name}-nobody` } } });
    await assert.rejects(client.wait(`${name}n`, { timeoutMs: 200 }),
      { name: "TimeoutError", message: new RegExp(`after 200 ms: step s: no agent ${name}-nobody has claimed runs here`) });
  });

  test("signals and approvals", async () => {
    const key = `${name}-paid`;
    const definition: JobDefinition = { type: name, steps: {
      paid: { agent: "signal", with: { name: "payment.completed", key } },
      ok: { agent: "approval", with: { message: "Ship?" }, after: ["paid"] } } };
    const event = { name: "payment.completed", key, id: "evt_1", data: { amount: 7 } };
    assert.deepEqual((await client.sendSignal(event)).matched, []);
    assert.equal((await client.sendSignal(event)).repeated, true);
    const { id } = (await client.submit(definition)).job; // it receives what was kept
    assert.deepEqual(((await client.step(id, "paid")).output as { data: unknown }).data, { amount: 7 });
    await client.approve(id, "ok", { data: { by: "sea" }, reason: "seen" }, { author: "Zoë" });
    assert.deepEqual((await wait(id)).current, "done");

    const other = (await client.submit({ ...definition, onFailure: "undo" })).job.id;
    assert.deepEqual((await client.sendSignal({ name: "payment.completed", key }, { job: other })).matched, [`${other}/paid`]);
    await client.reject(other, "ok", "out of stock");
    const rejected = await wait(other);
    assert.deepEqual([rejected.current, rejected.steps?.ok?.lastError?.code], ["undone", "rejected"]);
  });

  test("an operator's acts", async () => {
    const key = `${name}-parked`;
    const steps = { charge: { agent: name, with: { amount: -1 }, undo: {} }, more: { agent: name, action: "charge", after: ["charge"], with: { amount: 1 } } };
    await client.submit({ type: name, steps }, { key });
    assert.equal((await wait(key)).phase, "parked");
    const [alert] = await client.listAlerts({ job: key }).all();
    assert.deepEqual([alert?.kind, alert?.step], ["parked", "charge"]);
    await assert.rejects(client.closeAlert(alert!.id), { code: "conflict" });
    await client.edit(key, "charge", { input: { amount: -2 }, reason: "wrong amount" }, { author: "Zoë" });
    await client.resumeStep(key, "charge", { input: { amount: -3 } });
    assert.deepEqual((await wait(key)).steps?.charge?.input, { amount: -3 });
    await client.settle(key, "charge", { as: "done", output: { charged: 7 }, reason: "by hand" });
    const done = await wait(key);
    assert.deepEqual([done.current, done.steps?.charge?.output], ["done", { charged: 7 }]);
    const history = await client.history(key).all();
    assert.ok(history.some((e) => e.event === "edit" && e.author === "Zoë" && e.detail?.includes("wrong amount")), JSON.stringify(history));
    assert.equal((await client.listAlerts({ job: key }).all()).length, 0);
    assert.equal((await client.listAlerts({ job: key, closed: true }).all()).length, 2);
    const first = await client.history(key).page({ limit: 1 });
    assert.deepEqual([first.items[0], (await client.history(key).page({ limit: 1, cursor: first.nextCursor })).items[0]], history.slice(0, 2));

    await client.submit({ type: name, steps: { charge: { agent: name, with: { amount: -1 } } } }, { key: `${key}2` });
    await wait(`${key}2`);
    await assert.rejects(client.history(`${key}2`).all(0), RangeError);
    await client.resume(`${key}2`);
    assert.equal((await wait(`${key}2`)).phase, "parked");
    assert.equal((await client.skip(`${key}2`, "charge", "not needed")).steps?.charge?.skipped, true);
    assert.equal((await wait(`${key}2`)).phase, "settled");
    await client.submit("type: t\nsteps: {charge: {agent: none}}", { key: `${key}3` });
    assert.ok(!(await client.submit("type: t\nsteps: {charge: {agent: none}}", { key: `${key}3` })).created);
    assert.equal((await client.giveUp(`${key}3`, "enough")).givenUp?.reason, "enough");
  });

  test("a job is followed", async () => {
    const key = `${name}-followed`;
    await client.submit(definition(1, { key }));
    let steps: Job["steps"] = {};
    let last: Job | undefined;
    for await (const job of client.follow(key)) {
      last = job;
      steps = { ...steps, ...job.steps };
    }
    assert.deepEqual([last?.phase, last?.current, steps.charge?.current], ["settled", "done", "done"]);
    await assert.rejects(async () => { for await (const _ of client.follow("no-such-job")); }, { code: "notFound" });
    await client.submit({ type: name, steps: { s: { agent: `${name}-nobody` } } }, { key: `${key}2` });
    for await (const job of client.follow(`${key}2`)) { // the loop may be left
      assert.equal(job.phase, "waiting");
      break;
    }
    const stop = new AbortController();
    await assert.rejects(async () => {
      for await (const _ of client.follow(`${key}2`, { signal: stop.signal })) stop.abort(new Error("enough"));
    }, { message: "enough" });
  });

  test("limits, agents, nodes", async () => {
    const limit = `job:${name}`;
    assert.deepEqual([(await client.putLimit(limit, { max: 3 })).max, (await client.getLimit(limit)).max], [3, 3]);
    assert.equal((await client.putLimit(name, { perKey: { max: 2 } })).perKey?.max, 2);
    assert.ok((await client.listLimits()).some((l) => l.name === limit));
    for (const each of [limit, name]) await client.deleteLimit(each);
    await assert.rejects(client.getLimit(limit), { code: "notFound" });
    assert.equal((await client.putAgent(name, { ageing: "10m" })).ageing, "10m");
    assert.equal((await client.getAgent(name)).holders, 1);
    assert.ok((await client.listAgents()).some((a) => a.name === name));
    assert.equal((await client.listNodes())[0]?.state, "alive");
    assert.equal(typeof await client.health(), "string");
    assert.equal(await client.ready(), await client.health());
    assert.equal((await client.jobSchema()).title, "Perdure job");
  });

  test("schedules and definitions", async () => {
    const definition = { type: name, steps: { a: { agent: name } } };
    const [first, second] = [await client.putDefinition(name, definition), await client.putDefinition(name, `type: ${name}\nsteps: {b: {agent: ${name}}}`)];
    assert.deepEqual([first.version, second.version, second.current, (await client.putDefinition(name, definition)).version], [1, 2, 1, 1]);
    assert.equal((await client.promoteDefinition(name, 2)).current, 2);
    assert.ok((await client.listDefinitions().all()).some((d) => d.name === name));

    const settings = { cron: "30 2 * * *", timezone: "Europe/Warsaw", job: { definition: name } };
    assert.equal((await client.putSchedule(name, settings, { dryRun: true })).name, name);
    await assert.rejects(client.getSchedule(name), { code: "notFound" });
    assert.equal((await client.putSchedule(name, settings)).version, 1);
    assert.equal((await client.pauseSchedule(name, "the warehouse moves")).state, "paused");
    assert.ok((await client.listSchedules({ state: "paused" }).all()).some((s) => s.name === name));
    const day = { from: "2026-01-01T00:00:00Z", to: "2026-01-03T00:00:00Z" };
    assert.deepEqual((await client.backfillSchedule(name, { ...day, dryRun: true })).first, ["2026-01-01T01:30:00Z", "2026-01-02T01:30:00Z"]);
    const fired = await client.triggerSchedule(name, "2026-01-01T01:30:00Z");
    assert.deepEqual([fired.created, fired.unscheduled, (await client.triggerSchedule(name, "2026-01-01T01:30:00Z")).job], [true, undefined, fired.job]);
    assert.deepEqual((await client.listFirings(name).all()).map((f) => f.job), [fired.job]);
    assert.equal((await client.resumeSchedule(name)).state, "active");
    assert.equal((await client.nextTimes(name, 3)).length, 3);
    await assert.rejects(client.deleteDefinition(name), { code: "conflict" });
    await client.deleteSchedule(name);
    await client.deleteDefinition(name);
    await assert.rejects(client.getDefinition(name), { code: "notFound" });
  });

  test("any call", async () => {
    assert.deepEqual((await client.call("PUT", `/v1/limits/job:${name}`, { max: 3 }) as { max: number }).max, 3);
    assert.equal(await client.call("DELETE", `/v1/limits/job:${name}`), undefined);
  });
});
