// Values that are stored as artifacts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PerdureError } from "perdure";
import { type ArtifactReference, isReference, offload, referenceTo, valueOf } from "#internal/artifact";
import { parse, stringify } from "#internal/json";

const limit = 256 << 10;
const large = "x".repeat(limit);

function memory(): { store: (text: string) => Promise<ArtifactReference>; load: (reference: unknown) => unknown; kept: Map<string, string> } {
  const kept = new Map<string, string>();
  return {
    kept,
    store: async (text) => {
      const reference = referenceTo(text);
      kept.set(reference.$artifact, text);
      return reference;
    },
    load: (reference) => {
      assert.ok(isReference(reference));
      return valueOf(reference, Buffer.from(kept.get(reference.$artifact)!));
    },
  };
}

test("small values stay", async () => {
  const { store, kept } = memory();
  for (const value of [null, 5, "text", { a: [1, 2, { b: "c" }] }, "x".repeat(limit - 2)]) {
    assert.equal(await offload(stringify(value), store), stringify(value));
  }
  assert.equal(kept.size, 0);
});

test("members are replaced as far inside as possible", async () => {
  const { store, load } = memory();
  const got = parse(await offload(stringify({ a: { b: [1, large], c: 2 }, d: 12345678901234567890n }), store)) as { a: { b: unknown[]; c: number }; d: bigint };
  assert.deepEqual([got.a.c, got.d, got.a.b[0], load(got.a.b[1])], [2, 12345678901234567890n, 1, large]);
});

test("many small members", async () => {
  const { store, load } = memory();
  const of = (n: number): Record<string, string> => Object.fromEntries(Array.from({ length: n }, (_, i) => [`m${i}`, "y".repeat(100_000)]));
  assert.equal(await offload(stringify(of(5)), store), stringify(of(5)), "an object stays one while it fits");
  assert.deepEqual(load((parse(await offload(stringify({ inner: of(5) }), store)) as { inner: unknown }).inner), of(5));
  assert.deepEqual(load(parse(await offload(stringify(of(20)), store))), of(20));
  const numbers = Array.from({ length: 100_000 }, (_, i) => i);
  assert.deepEqual(load(parse(await offload(stringify(numbers), store))), numbers);
});

test("other bytes are refused", () => {
  const reference = referenceTo('"abc"');
  for (const data of ['"abd"', '"abc" ']) {
    assert.throws(() => valueOf(reference, Buffer.from(data)), (e) => e instanceof PerdureError && e.code === "unavailable");
  }
  assert.deepEqual(valueOf({ ...reference, type: "text/plain" }, Buffer.from('"abc"')), Buffer.from('"abc"'));
  assert.ok(!isReference({ $artifact: 5, size: 1 }) && !isReference("sha256:") && !isReference(null));
});
