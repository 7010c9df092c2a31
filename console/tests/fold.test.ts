import assert from "node:assert/strict";
import { test } from "node:test";
import { closer, countMarks, fewestFolded, shownPart, siblings, stackMark } from "../src/fold.ts";
import { escapeXml, picture } from "../src/picture.ts";
import type { Mark } from "../src/state.ts";
import type { Graph } from "../src/types.ts";
import { viewOf, viewText } from "../src/view.ts";

/** One step, then n equal ones, then one; the places are as internal/graph has them. */
function fan(n: number, agentOf = (_: number) => "a"): Graph {
  const middle = 24 + ((n - 1) * 62) / 2;
  const nodes = [
    { name: "first", x: 24, y: middle, agent: "a" },
    ...Array.from({ length: n }, (_, i) => ({ name: `p${i}`, x: 256, y: 24 + 62 * i, agent: agentOf(i) })),
    { name: "last", x: 488, y: middle, agent: "a" },
  ];
  const edges = [
    ...Array.from({ length: n }, (_, i) => ({ from: 0, to: i + 1, points: [192, middle + 22, 256, 46 + 62 * i] })),
    ...Array.from({ length: n }, (_, i) => ({ from: i + 1, to: n + 1, points: [424, 46 + 62 * i, 488, middle + 22] })),
  ];
  return { hash: "h", width: 680, height: 62 * n + 30, nodeWidth: 168, nodeHeight: 44, nodes, edges };
}

test("more than 40 equal siblings are one stack, at the height of its neighbours", () => {
  assert.deepEqual(siblings(fan(fewestFolded - 1)), []);
  const graph = fan(500);
  const groups = siblings(graph);
  assert.deepEqual(groups.map((g) => g.length), [500]);
  const shown = shownPart(graph, groups, new Set());
  assert.deepEqual(shown.nodes.map((n) => [n.name, n.members?.length, n.x, n.y]), [["first", undefined, 24, 24], ["p0", 500, 256, 24], ["last", undefined, 488, 24]]);
  assert.deepEqual(shown.edges, [{ from: 0, to: 1, points: [192, 46, 256, 46] }, { from: 1, to: 2, points: [424, 46, 488, 46] }]);
  assert.equal(shown.height, 92);
  assert.equal(shown.boxOf.get("p123"), 1);
});

test("steps of another agent, or with another child, are in another stack", () => {
  assert.deepEqual(siblings(fan(90, (i) => (i % 2 ? "a" : "b"))).map((g) => g.length), [45, 45]);
  const graph = fan(60);
  graph.edges.splice(graph.edges.findIndex((e) => e.from === 7), 1);
  assert.deepEqual(siblings(graph).map((g) => g.length), [59]);
});

test("hidden steps leave no space, and a stack whose steps are all hidden is gone", () => {
  const graph = fan(50);
  const settled = new Set(Array.from({ length: 49 }, (_, i) => i + 1));
  const shown = shownPart(graph, siblings(graph), settled);
  assert.deepEqual(shown.nodes.map((n) => [n.name, n.members?.length]), [["first", undefined], ["p0", 1], ["last", undefined]]);
  assert.deepEqual(shownPart(graph, siblings(graph), settled.add(50)).nodes.map((n) => n.name), ["first", "last"]);
  assert.equal(shown.boxOf.has("p3"), false);
  const open = shownPart(graph, [], new Set([0, 10]));
  assert.equal(open.nodes.length, 50);
  assert.equal(open.edges.length, 49);
});

test("wide space becomes a gap, narrow space stays", () => {
  const axis = closer([[0, 10], [15, 20], [1000, 1010]], 18);
  assert.deepEqual([0, 10, 15, 20, 500, 1000, 1010].map(axis.map), [24, 34, 39, 44, 53, 62, 72]);
  assert.equal(axis.size, 96);
});

test("a stack has the colour of its most urgent step, and all numbers", () => {
  const mark = (sign: string, word: string, tone: Mark["tone"]): Mark => ({ sign, word, tone, detail: "x" });
  const counts = countMarks([mark("✓", "done", "good"), mark("■", "parked", "bad"), mark("✓", "done", "good")]);
  assert.deepEqual(counts.map((c) => c.n), [1, 2]);
  assert.deepEqual(stackMark(counts), { sign: "", word: "■ 1  ✓ 2", tone: "bad", detail: "1 parked, 2 done" });
  assert.equal(stackMark(counts.slice(1)).word, "2 done");
});

test("a picture has every box and its legend, and text of users is only text", () => {
  const graph = fan(2);
  graph.nodes[1]!.name = `<script>"&'\u0000\ud800`;
  const marks = graph.nodes.map((): Mark => ({ sign: "✓", word: "done", tone: "good", detail: "" }));
  const made = picture(shownPart(graph, [], new Set()), marks, "order & <b>", "parked", [{ mark: marks[0]!, n: 4 }]);
  assert.doesNotMatch(made.svg, /<script|<b>|\u0000|[\ud800-\udfff]/);
  assert.match(made.svg, /&#60;script&#62;/);
  assert.match(made.svg, /✓ done 4/);
  assert.equal(made.svg.match(/<g transform="translate\(\d+ \d+\)">/g)!.length, 5);
  assert.equal(escapeXml("a\tb"), "a\tb");
});

test("a view survives the URL, whatever the window's size", () => {
  const text = viewText({ x: -100, y: 50, k: 0.5 }, 1000, 600);
  assert.equal(text, "1200,500,50");
  assert.deepEqual(viewOf(text, 1000, 600), { x: -100, y: 50, k: 0.5 });
  for (const bad of ["", "1,2", "1,2,3,4", "a,b,c", "1e9,2,3", "1,2,99999"]) assert.equal(viewOf(bad, 1000, 600), undefined, bad);
});
