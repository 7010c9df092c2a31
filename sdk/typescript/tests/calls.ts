// Every call that the package can make, with all that it can send. sdk/typescript_calls_test.go compares what arrives with
// the server's OpenAPI document.
//
//     node calls.js SERVER

import assert from "node:assert/strict";

import { Agent, Client, type JobDefinition, NoEffect, RetryAfter, type Run, type ScheduleSettings } from "perdure";

const client = new Client(process.argv[2], { author: "anna" });
const ref = "order-1042";
const definition: JobDefinition = { type: "order", steps: { charge: { agent: "payments" } } };

await client.submit(definition, { key: ref, traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
await client.submit("type: order\nsteps: {charge: {agent: payments}}");
await client.submitAll([definition], undefined, { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
const results = await client.submitAll([{ key: ref, input: { a: 1 }, priority: 3, labels: { a: "b" }, startAt: "2031-01-01T08:00:00Z" }, {}, {}], definition);
assert.deepEqual(results.map((r) => r.created), [true, false, undefined]);
await new Client(process.argv[2], { offload: true }).submit({ ...definition, input: { text: "x".repeat(256 << 10) } });
const artifact = { $artifact: "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", size: 3, type: "text/plain" };
assert.equal(String(await client.loadArtifact(artifact)), "foo");

assert.equal((await client.get(ref)).type, "order");
assert.equal((await client.step(ref, "reserve")).name, "reserve");
assert.equal((await client.definition(ref)).type, "order");
assert.equal((await client.wait(ref, { timeoutMs: 1_000 })).phase, "parked");
const followed = [];
for await (const job of client.follow(ref)) followed.push(job.phase);
assert.deepEqual(followed, ["running", "settled"]);

for (const phase of ["waiting", "running", "parked", "settled"] as const) {
  for (const current of ["undone", "done", "unsure"] as const) {
    for (const desired of ["undone", "done"] as const) {
      const jobs = await client.list({ phase, type: "order", current, desired, key: ref, labels: { customer: "c-77", region: "eu" },
        agent: "payments", step: "charge", reason: "limit", error: "declined", alert: "parked", parent: "album-7/resize", q: "order-", since: "24h", until: "1h", order: "oldest" }).all();
      assert.equal(jobs.length, 2); // of two pages
    }
  }
}
assert.equal((await client.list({ phase: undefined }).page()).items.length, 1);
assert.equal((await client.history(ref).all()).length, 2);

await client.undo(ref, "why");
await client.redo(ref, "why");
await client.resume(ref, "why");
await client.giveUp(ref, "why");
await client.resumeStep(ref, "charge", { input: null, newKey: true, reason: "why" });
await client.edit(ref, "charge", { input: { amount: 1 }, newKey: true, reason: "why" });
await client.settle(ref, "charge", { as: "done", output: 1, reason: "why" });
await client.settle(ref, "charge", { as: "undone" });
await client.skip(ref, "charge", "why");
await client.stop(ref, "charge", "why");
await client.approve(ref, "ok", { data: { a: 1 }, reason: "why" });
await client.reject(ref, "ok", "why");
assert.equal((await client.sendSignal({ name: "paid", key: "p1", id: "evt_1", data: { a: 1 }, keep: "2h" })).matched.length, 1);
assert.equal((await client.sendSignal({ name: "paid", key: "p1", id: "evt_1", data: 1, keep: "2h", to: "all" }, { job: ref, author: "Zoë" })).matched.length, 1);
await client.sendSignal({ name: "paid", key: "p1", to: "one" }, { job: ref });
await client.sendSignal({ name: "paid", key: "p1", to: "one" });
await client.sendSignal({ name: "paid", key: "p1", to: "all" });

assert.equal((await client.listAlerts({ job: ref, closed: true }).all()).length, 2);
assert.equal((await client.closeAlert(12, "mended", { author: "Zoë" })).closedBy, "Zoë: mended");
assert.equal((await client.listLimits()).length, 1);
assert.equal((await client.getLimit("agent:http")).max, 3);
assert.deepEqual((await client.putLimit("ads", { max: 3, rate: "5/s", burst: 9, perKey: { max: 1, rate: "1/s", burst: 4 }, order: "submitted", keys: { a: { max: 1 } } })).perKey, { max: 1, rate: "1/s", burst: 4 });
await client.deleteLimit("ads");
assert.equal((await client.listAgents()).length, 1);
assert.equal((await client.getAgent("http")).ageing, "10m");
assert.equal((await client.putAgent("http", { ageing: "1h", patience: "2m", fairBy: "job.labels.customer", weights: { gold: 4 } })).ageing, "1h");
await client.deleteAgent("http");
const schedule: ScheduleSettings = { cron: "0 0 * * *", timezone: "UTC", job: { definition: "order", input: 1, priority: 3, labels: { a: "b" } },
  catchUp: { within: "2h", max: 3 }, jitter: "5m", pauseAfter: 3, from: "2031-01-01T08:00:00Z", until: "2032-01-01T08:00:00Z", paused: true };
for (const state of ["active", "paused", "ended"] as const) assert.ok((await client.listSchedules({ state }).all()).length > 0);
assert.equal((await client.getSchedule("nightly")).name, "nightly");
for (const overlap of ["skip", "queue", "allow", "replace"] as const) await client.putSchedule("nightly", { ...schedule, overlap });
await client.putSchedule("nightly", { every: "1h", job: { definition } }, { dryRun: true });
await client.putSchedule("nightly", { at: ["2031-01-01T08:00:00Z"], job: { definition } });
await client.deleteSchedule("nightly");
await client.pauseSchedule("nightly", "why");
await client.resumeSchedule("nightly", { catchUp: true });
assert.equal((await client.triggerSchedule("nightly", "2031-01-01T08:00:00Z")).created, true);
await client.triggerSchedule("nightly");
await client.backfillSchedule("nightly", { from: "2026-01-01T08:00:00Z", to: "2026-01-02T08:00:00Z", parallel: 2, dryRun: true, again: true });
assert.ok((await client.nextTimes("nightly", 20)).length > 0);
assert.ok((await client.listFirings("nightly").all()).length > 0);
assert.ok((await client.listDefinitions().all()).length > 0);
assert.equal(typeof (await client.getDefinition("order@7")).version, "number");
await client.putDefinition("order", definition);
await client.putDefinition("order", "type: order\nsteps: {charge: {agent: payments}}");
await client.promoteDefinition("order", 7);
await client.deleteDefinition("order@6");
assert.equal((await client.listNodes())[0]?.leads[0]?.role, "supervisor");
await client.jobSchema();
await client.health();
await client.ready();

// An agent, whose reports have all that a report can have.
const ended: string[] = [];
const agent = new Agent("payments", { slots: 8 });
const handle = (action: string, work: (run: Run) => unknown): void => {
  agent.handle(action, { async do(_input, run) {
    try {
      return await work(run);
    } finally {
      ended.push(action);
    }
  } });
};
handle("done", () => ({ id: "ch-9" }));
handle("later", () => { throw new RetryAfter(1_000, "busy", { code: "busy" }); });
handle("nothing", () => { throw new NoEffect("nothing"); });
handle("beats", async (run) => {
  run.progress({ done: 3 });
  await run.sleep(10_000); // until a heartbeat says to stop
});
const host = client.host([agent], { heartbeatMs: 100, log: null });
host.start();
while (ended.length < 4) await new Promise((resolve) => setTimeout(resolve, 10));
await host.drain(2_000);
