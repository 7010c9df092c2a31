import assert from "node:assert/strict";
import { test } from "node:test";

// The modules below read the address of the page.
Object.assign(globalThis, { document: { baseURI: "http://127.0.0.1:7420/perdure/ui/", hidden: false, addEventListener: () => undefined } });
const { EventReader } = await import("../src/events.ts");
const { callUrl, problemOf } = await import("../src/api.ts");

test("a stream is read however it is cut", () => {
  const stream = ':\n\nevent: job\ndata: {"a":1}\n\n:\n\nevent: rest\r\ndata: {}\r\n\r\ndata:x\ndata: y\n\nevent: none\n\n';
  const wanted = [{ name: "job", data: '{"a":1}' }, { name: "rest", data: "{}" }, { name: "message", data: "x\ny" }];
  for (let size = 1; size <= stream.length; size++) {
    const reader = new EventReader();
    const events = [];
    for (let i = 0; i < stream.length; i += size) events.push(...reader.take(stream.slice(i, i + size)));
    assert.deepEqual(events, wanted, `pieces of ${size}`);
  }
});

test("calls go to the API beside the console, and parts of a path are encoded", () => {
  assert.equal(callUrl(["v1", "jobs", "a/b?c"], "?wait=1s"), "http://127.0.0.1:7420/perdure/v1/jobs/a%2Fb%3Fc?wait=1s");
});

test("a refusal is read, also one that is not of the server", () => {
  const problem = problemOf(422, '{"code":"invalid","detail":"no","hint":"mend it","errors":[{"pointer":"/a","message":"m"}]}');
  assert.deepEqual([problem.code, problem.message, problem.hint, problem.faults.length], ["invalid", "no", "mend it", 1]);
  for (const text of ["<html>502</html>", "null", "[]", '{"error":"x"}', ""]) {
    const other = problemOf(502, text);
    assert.deepEqual([other.code, other.status], ["http502", 502], text);
  }
});
