import assert from "node:assert/strict";
import test from "node:test";
import { differences } from "../src/differences.ts";
import { parseJson } from "../src/json.ts";

test("values differ in the places that `perdure definitions diff` prints", () => {
  const from = parseJson('{"type":"order","steps":{"a":{"agent":"x","after":["b","c"]},"b/c~d":{"agent":"y"}},"n":1}');
  const to = parseJson('{"type":"order","steps":{"a":{"agent":"z","after":["c"]},"e":{"agent":"y"}},"n":1.0}');
  assert.deepEqual(
    differences(from, to).map((d) => d.pointer),
    ["/n", "/steps/a/after", "/steps/a/agent", "/steps/b~1c~0d", "/steps/e"],
  );
  const [, after, , gone, added] = differences(from, to);
  assert.deepEqual(after, { pointer: "/steps/a/after", from: ["b", "c"], to: ["c"] });
  assert.ok(gone!.from !== undefined && !("to" in gone!) && added!.to !== undefined && !("from" in added!));
  assert.deepEqual(differences(from, from), []);
});

test("null differs from what is not there", () => {
  assert.deepEqual(differences({ a: null }, {}), [{ pointer: "/a", from: null }]);
  assert.deepEqual(differences({}, { a: null }), [{ pointer: "/a", to: null }]);
});
