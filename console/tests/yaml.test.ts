import assert from "node:assert/strict";
import { test } from "node:test";
import { parseJson } from "../src/json.ts";
import { toYaml } from "../src/yaml.ts";

test("a definition is written as people write it", () => {
  const text = `{"type":"order","input":{"amount":10.50,"id":12345678901234567890},"steps":{"a b":{"agent":"http","with":{"url":"http://x/?a=1","note":"yes","list":[1,true,null,"#"]}},"2":{"agent":"sleep","after":["a b"],"with":{"for":"1h30m"}}}}`;
  assert.equal(
    toYaml(parseJson(text)),
    `type: order
input:
  amount: 10.50
  id: 12345678901234567890
steps:
  a b: {agent: http, with: {url: "http://x/?a=1", note: "yes", list: [1, true, null, "#"]}}
  "2": {agent: sleep, after: [a b], with: {for: 1h30m}}
`,
  );
});

test("long values are blocks, and text that YAML would read otherwise is quoted", () => {
  const long = "x".repeat(100);
  assert.equal(toYaml({ a: { b: { c: [long, { d: long }], e: [] } } }), `a:\n  b:\n    c:\n      - ${long}\n      -\n        d: ${long}\n    e: []\n`);
  for (const text of ["", " a", "a ", "a: b", "a #b", "- a", "1e3", "null", "No", "~", "a\nb", "<<", "{a", "é", "2026-01-01", "a,b"]) {
    assert.equal(toYaml({ a: text }), `a: ${JSON.stringify(text)}\n`, text);
  }
});
