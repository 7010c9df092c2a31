import assert from "node:assert/strict";
import { test } from "node:test";
import { alertLink, bars, reasonLink, reasonText, short } from "../src/stats.ts";

test("counts are short, and say what they are", () => {
  for (const [n, text] of [[0, "0"], [912, "912"], [9999, "9999"], [10_000, "10k"], [48_123, "48.1k"], [999_999, "999.9k"], [1_200_000, "1.2M"], [3e9, "3G"]] as const) {
    assert.equal(short({ n }), text);
  }
  assert.equal(short({ n: 20_000, capped: true }), "20k+");
  assert.equal(short({ n: 1_000_000, estimated: true }), "~1M");
});

test("a bar is the sum of some values, in proportion to the highest", () => {
  assert.deepEqual(bars([], 5), []);
  assert.deepEqual(bars([0, 0], 5), [0, 0]);
  assert.deepEqual(bars([1, 1, 3, 1], 2), [0.5, 1]);
  assert.equal(bars(new Array(60).fill(1), 30).length, 30);
});

test("a reason is a sentence, and leads to its jobs", () => {
  const now = Date.parse("2026-01-02T15:04:06Z");
  const r = (more: object) => reasonText({ reason: "noAgent", name: "mail", steps: 1, ...more } as never, now);
  assert.equal(r({}), "no agent mail has claimed runs in the last day");
  assert.equal(r({ lastClaim: "2026-01-02T14:52:06Z" }), "no agent mail has claimed runs for 12 min");
  assert.equal(r({ reason: "limit", name: "ads", used: 10, max: 10 }), "limit ads is full (10 of 10)");
  assert.equal(r({ reason: "limit", name: "ads", used: 4, max: 10, perKeyMax: 2 }), "limit ads is full for their keys (2 for each)");
  assert.equal(r({ reason: "limit", name: "ads", rate: "5/s" }), "limit ads lets 5/s through");
  assert.equal(r({ reason: "limit", name: "ads", perKeyRate: "5/s" }), "limit ads lets 5/s through for each key");
  assert.equal(r({ reason: "limit", name: "ads", max: 0 }), "stopped by limit ads = 0");
  assert.equal(r({ reason: "backoff", name: "", next: "2026-01-02T15:04:15Z" }), "wait for a retry, next in 9 s");
  assert.equal(r({ reason: "later", name: "x" }), "later x");
  assert.equal(reasonLink({ reason: "noAgent", name: "mail", steps: 1 } as never), "jobs?agent=mail");
  assert.equal(reasonLink({ reason: "limit", name: "agent:ads", steps: 1 } as never), "jobs?agent=ads");
  assert.equal(reasonLink({ reason: "limit", name: "job:order", steps: 1 } as never), "jobs?phase=waiting&type=order");
  assert.equal(reasonLink({ reason: "limit", name: "ads", steps: 1 } as never), "jobs?reason=limit");
});

test("alerts lead to their jobs, and those about no job to the alerts", () => {
  assert.equal(alertLink({ kind: "parked", type: "order", step: "charge", code: "card_declined", n: 2 } as never), "jobs?alert=parked&type=order&step=charge&error=card_declined");
  assert.equal(alertLink({ kind: "clock", n: 1 } as never), "alerts");
});
