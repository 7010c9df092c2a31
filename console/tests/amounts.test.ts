import assert from "node:assert/strict";
import { test } from "node:test";
import { amountOf, amountsOf, amountText, requiresText } from "../src/amounts.ts";
import { ExactNumber } from "../src/json.ts";

test("amounts are numbers, and memory has units", () => {
  assert.equal(amountOf(2.5), 2.5);
  assert.equal(amountOf(new ExactNumber("1.0")), 1);
  assert.equal(amountOf("4GiB"), 4 * 2 ** 30);
  assert.equal(amountOf("1536"), 1536);
  assert.ok(Number.isNaN(amountOf("much")));
  assert.equal(amountText("memory", 1.5 * 2 ** 30), "1.5 GiB");
  assert.equal(amountText("memory", 512 * 2 ** 20), "512 MiB");
  assert.equal(amountText("memory", 0), "0");
  assert.equal(amountText("cpu", 0.1 + 0.2), "0.3");
});

test("slots, processors and memory are first", () => {
  assert.deepEqual(amountsOf({ gpu: 1, memory: "4GiB", cpu: 4, slots: 8 }, { cpu: 1.5, memory: "1GiB" }), [
    { name: "slots", used: 0, capacity: 8 }, { name: "cpu", used: 1.5, capacity: 4 }, { name: "memory", used: 2 ** 30, capacity: 4 * 2 ** 30 }, { name: "gpu", used: 0, capacity: 1 },
  ]);
});

test("what a run takes is amounts, labels and the grid", () => {
  assert.equal(requiresText({ memory: "4GiB", cpu: 2, labels: { gpu: "*" }, grid: "local" }), "cpu 2, memory 4 GiB, gpu=*, grid local");
  assert.equal(requiresText({}), "");
});
