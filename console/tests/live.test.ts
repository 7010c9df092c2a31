import assert from "node:assert/strict";
import { test } from "node:test";
import type { ListPage, LiveList } from "../src/live.ts";

// The modules below read the address of the page.
Object.assign(globalThis, { document: { baseURI: "http://127.0.0.1:7420/perdure/ui/", hidden: false, addEventListener: () => undefined } });
const { applyEvent, emptyList } = await import("../src/live.ts");
const { grouped } = await import("../src/groups.ts");

interface Row {
  id: string;
  phase: string;
}
type List = LiveList<Row, ListPage<Row>>;

const rows = (...texts: string[]): Row[] => texts.map((text) => ({ id: text.slice(0, 1), phase: text.slice(2) }));
const page = (items: Row[], nextCursor?: string) => ({ items, ...(nextCursor && { nextCursor }) });
const apply = (list: List, name: string, data: unknown, replace = false) => applyEvent<Row, ListPage<Row>>(list, name, data as never, replace);
const shown = (list: List) => list.rows.map((row) => `${row.id}:${row.phase}${list.gone.has(row.id) ? "!" : ""}`).join(" ");

test("changed rows change in place, and rows that no longer match stay", () => {
  let list = apply(emptyList<Row, ListPage<Row>>(), "page", page(rows("c:waiting", "b:waiting", "a:waiting"), "next"));
  assert.equal(shown(list), "c:waiting b:waiting a:waiting");
  assert.ok(list.live);
  list = apply(list, "changed", { items: rows("b:running", "z:running") });
  list = apply(list, "gone", { ids: ["c", "y"] });
  assert.equal(shown(list), "c:waiting! b:running a:waiting");
  assert.equal(list.gone.size, 1, "rows that are not shown are not remembered");
  list = apply(list, "newer", { n: 12 });
  assert.equal(list.newer, 12);
  list = apply(list, "changed", { items: rows("c:running") });
  assert.equal(shown(list), "c:running b:running a:waiting", "a row that matches again");
  list = apply(list, "newer", { n: 100, capped: true });
  assert.ok(list.capped);
  list = apply(list, "of a newer server", {});
  assert.equal(list.newer, 100);
});

test("a page after an interruption does not move rows", () => {
  let list = apply(emptyList<Row, ListPage<Row>>(), "page", page(rows("c:waiting", "b:waiting", "a:waiting"), "next"));
  list = apply(list, "problem", { status: 503, code: "unavailable", detail: "the store does not answer" });
  assert.equal(list.problem?.code, "unavailable");
  assert.ok(!list.live);
  list = apply(list, "page", page(rows("e:waiting", "d:waiting", "b:running"), "other"));
  assert.equal(shown(list), "c:waiting! b:running a:waiting");
  assert.equal(list.newer, 2);
  assert.equal(list.problem, undefined);
  list = apply(list, "newer", { n: 3 });
  assert.equal(list.newer, 5, "newer than the page, and on the page");
  list = apply(list, "page", page(rows("f:waiting")), true);
  assert.equal(shown(list), "f:waiting", "the user has asked for it");
  assert.equal(list.newer, 0);
});

test("a list of no rows shows those that come", () => {
  let list = apply(emptyList<Row, ListPage<Row>>(), "page", page([]));
  list = apply(list, "page", page(rows("a:waiting")));
  assert.equal(shown(list), "a:waiting");
});

test("alerts are grouped by kind, type, step and code", () => {
  const alert = (n: number, type: string, code?: string) => ({ id: n, kind: "parked", message: "", raisedAt: `2026-01-0${n}T00:00:00Z`, type, step: "charge", attempts: n, ...(code && { code }) });
  const groups = grouped([alert(5, "order", "card_declined"), alert(4, "trip"), alert(3, "order", "card_declined"), alert(2, "order", "card_declined"), alert(1, "order", "503")], new Set(["2", "4"]));
  assert.deepEqual(
    groups.map((g) => [g.type, g.code, g.count, g.size, g.attempts, g.oldest.slice(0, 10)]),
    [["order", "card_declined", 2, 3, 5, "2026-01-02"], ["order", "503", 1, 1, 1, "2026-01-01"], ["trip", undefined, 0, 1, 4, "2026-01-04"]],
  );
});
