import assert from "node:assert/strict";
import { test } from "node:test";
import { ExactNumber, maxDepth, namesOf, parseJson, showJson, type Json } from "../src/json.ts";

test("texts are read as JSON.parse reads them", () => {
  for (const text of ["null", "true", " false ", '"a\\u00e9\\n\\"b"', "[]", "{}", "[1,-2,0.5,1000]", '{"a":{"b":[null,{"c":""}]},"":1}', '"\u2028"', "-7", "0", "1.25", "9007199254740991"]) {
    assert.equal(JSON.stringify(parseJson(text)), JSON.stringify(JSON.parse(text)), text);
  }
});

test("numbers are exact", () => {
  for (const [text, kind] of [["9007199254740993", "bigint"], ["-12345678901234567890", "bigint"], ["100000000000000000000", "bigint"], ["10.50", "exact"], ["1e400", "exact"], ["-0", "exact"], ["0.1", "number"], ["7", "number"]] as const) {
    const value = parseJson(text);
    assert.equal(showJson(value), text);
    assert.equal(value instanceof ExactNumber ? "exact" : typeof value, kind, text);
  }
});

test("the order of fields is kept, also of names that are numbers", () => {
  const value = parseJson('{"b": 1, "10": 2, "2": 3, "a": {"1": 0}}') as { [name: string]: Json };
  assert.deepEqual(namesOf(value), ["b", "10", "2", "a"]);
  assert.equal(showJson(value), '{"b": 1, "10": 2, "2": 3, "a": {"1": 0}}');
});

test("a field may have any name", () => {
  const value = parseJson('{"__proto__": {"x": 1}, "constructor": 2, "toString": 3}') as { [name: string]: Json };
  assert.deepEqual(namesOf(value), ["__proto__", "constructor", "toString"]);
  assert.equal(({} as { x?: unknown }).x, undefined);
  assert.equal(showJson(value), '{"__proto__": {"x": 1}, "constructor": 2, "toString": 3}');
});

test("invalid texts are refused", () => {
  for (const text of ["", " ", "{", "[1,]", '{"a"}', '{"a":1,}', "tru", "01", "+1", ".5", "1.", "'a'", '"a', '"\n"', "[1]x", "nul", '{a:1}', "[", "\u00a01", "undefined", "-", '"\\x"']) {
    assert.throws(() => parseJson(text), SyntaxError, text);
  }
  assert.throws(() => parseJson("[".repeat(maxDepth + 2) + "]".repeat(maxDepth + 2)), /levels/);
});

test("large texts are read as small ones are", () => {
  const filler = `"filler": [${Array.from({ length: 10_000 }, (_, i) => `{"at": "2026-11-27T18:11:27.679419Z", "n": ${i}, "m": -1}`).join(", ")}]`;
  for (const value of ["10.50", "[1, 1e400]", "12345678901234567890", "-0", "[-0]", '{"2": 1, "1": 2}', "7", '"a: 12.5, b"', '{"a": 9007199254740993}', "1E5", "0.1"]) {
    const read = parseJson(`{"value": ${value}, ${filler}}`) as { [name: string]: Json };
    assert.equal(showJson(read.value!), showJson(parseJson(value)), value);
    assert.equal((read.filler as Json[]).length, 10_000);
  }
  assert.throws(() => parseJson(`{"value": 01, ${filler}}`), SyntaxError);
});

test("random values are shown as texts that read the same", () => {
  let seed = 1;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  const make = (depth: number): Json => {
    switch (random(depth > 4 ? 5 : 7)) {
      case 0: return null;
      case 1: return random(2) === 0;
      case 2: return random(1000) - 500;
      case 3: return BigInt(random(1e9)) * 10n ** 15n;
      case 4: return "text \"\\\u0001 \u05e9 " + random(100);
      case 5: return Array.from({ length: random(5) }, () => make(depth + 1));
      default: return Object.fromEntries(Array.from({ length: random(5) }, (_, i) => [`f${i}`, make(depth + 1)]));
    }
  };
  for (let i = 0; i < 500; i++) {
    const text = showJson(make(0));
    assert.equal(showJson(parseJson(text)), text);
  }
});

test("controls of the direction of text are escapes, and letters are not", () => {
  const value = parseJson('{"a\\u2066": ["\u202eabc\u202c", "שלום"]}');
  assert.equal(showJson(value), '{"a\\u2066": ["\\u202eabc\\u202c", "שלום"]}');
  assert.deepEqual(parseJson(showJson(value)), value);
});
