import assert from "node:assert/strict";
import { test } from "node:test";
import type { Graph } from "../src/types.ts";
import { centre, contains, curve, fit, nodeAt, opening, readingOrder, shorten, visiblePart, zoom } from "../src/view.ts";

const graph: Graph = {
  hash: "h", width: 2000, height: 400, nodeWidth: 168, nodeHeight: 44,
  nodes: [{ name: "b", x: 0, y: 200, agent: "a" }, { name: "a", x: 0, y: 0, agent: "a" }, { name: "c", x: 1832, y: 100, agent: "a" }],
  edges: [{ from: 1, to: 2, points: [168, 22, 400, 22, 1832, 122] }],
};

test("a drawing that fits is shown as a whole, a larger one at a step", () => {
  const whole = fit(graph, 1000, 600);
  assert.ok(contains(visiblePart(whole, 1000, 600), { x0: 0, y0: 0, x1: 2000, y1: 400 }));
  assert.equal(fit({ width: 100, height: 50 }, 1000, 600).k, 1, "it is not enlarged");
  const view = opening(graph, 2, 1000, 600);
  assert.equal(view.k, 1);
  assert.ok(contains(visiblePart(view, 1000, 600), { x0: 1832, y0: 100, x1: 2000, y1: 144 }), "the step is visible");
  assert.deepEqual(opening(graph, -1, 4000, 1000), fit(graph, 4000, 1000));
  assert.deepEqual(centre(graph, -1, 1000, 600, 1), whole);
});

test("zooming keeps the point under the pointer", () => {
  const before = { x: 30, y: -40, k: 1 };
  const after = zoom(before, 1.7, 300, 200);
  assert.ok(Math.abs((300 - before.x) / before.k - (300 - after.x) / after.k) < 1e-9);
  assert.equal(zoom(before, 1e9, 0, 0).k, 2.5);
  assert.equal(zoom(before, 1e-9, 0, 0).k, 0.02);
});

test("nodes are found by place, and read by column", () => {
  assert.equal(nodeAt(graph, 10, 210), 0);
  assert.equal(nodeAt(graph, 500, 500), -1);
  assert.deepEqual(readingOrder(graph), [1, 0, 2]);
});

test("lines are straight through columns and curved between them", () => {
  assert.equal(curve(graph.edges[0]!.points), "M168 22H400C1116 22 1116 122 1832 122");
});

test("texts are cut by their width", () => {
  assert.equal(shorten("reserve", 7), "reserve");
  assert.equal(shorten("reserved", 7), "reserv…");
  assert.equal(shorten("日本語テキスト", 7), "日本語…");
});
