// Secrets: resolved before a handler is called, and in nothing that the host sends or logs.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Agent, Failed, Rejected, type Run } from "perdure";

import { Host } from "#internal/host";
import { Redactor, Secrets, fill, maxSecretBytes } from "#internal/secret";
import type { Transport } from "#internal/transport";

const canary = 'canary-7f3a91 "ü\\';
const forms = ["canary", "7f3a91", "Y2FuYXJ5"];

/** The report of a run with a secret, the heartbeats, and everything that was logged. */
async function played(handler: (input: unknown, run: Run) => unknown, input: unknown = { token: "Bearer ${secret.TOKEN}", data: "${secret.TOKEN}" }) {
  const until = new Date(Date.now() + 20_000).toISOString();
  const run = { job: "job_1", step: "s", action: "x", run: 1, direction: "do", input, secrets: ["/token"], key: "k", lockedUntil: until,
    completeBy: until, remainingMs: 20_000, priority: 0 };
  const calls: string[] = [];
  let claims = 0;
  let report: Record<string, unknown> | undefined;
  const transport = {
    async ask(_: string, path: string, { body, signal }: { body: string; signal?: AbortSignal }) {
      calls.push(body);
      if (path.endsWith("/claim")) {
        assert.equal(JSON.parse(body).secrets, true);
        if (claims++ === 0) return { value: { runs: [run] } };
        await new Promise((resolve) => signal?.addEventListener("abort", resolve, { once: true }));
        return { value: { runs: [] } };
      }
      if (path === "/v1/reports") {
        report = JSON.parse(body).reports[0];
        return { value: { results: [{ accepted: true }] } };
      }
      return { value: { runs: [] } };
    },
  } as unknown as Transport;
  const log = { debug: (m: string) => void calls.push(m), info: (m: string) => void calls.push(m), warn: (m: string) => void calls.push(m), error: (m: string) => void calls.push(m) };
  const host = new Host(transport, [new Agent("a").handle("x", { do: handler })], { holder: "h", heartbeatMs: 100, log });
  host.start();
  while (!report) await new Promise((r) => setTimeout(r, 5));
  await host.drain(5_000);
  return { report: report as Record<string, any>, said: calls.join("\n") };
}

test("secrets reach the handler and nothing else", async () => {
  process.env["PERDURE_SECRET_TOKEN"] = canary;
  const handlers: Record<string, (input: unknown, run: Run) => unknown> = {
    returns: (input) => ({ input, [canary]: [canary] }),
    fails: (input) => { throw new Failed(JSON.stringify(input)); },
    rejects: () => { throw new Rejected("x".repeat(4090) + canary, { code: canary }); },
    throws: (input) => { throw new TypeError(`not ${(input as { token: string }).token}`); },
    throwsText: () => { throw canary; },
    isNoJSON: () => ({ [canary]: NaN }),
    makesProgress: async (input, run) => { run.progress(input); await run.sleep(150); },
  };
  for (const [name, handler] of Object.entries(handlers)) {
    const seen: unknown[] = [];
    const { report, said } = await played((input, run) => { seen.push(input); return handler(input, run); });
    assert.deepEqual(seen, [{ token: `Bearer ${canary}`, data: "${secret.TOKEN}" }]);
    for (const form of forms) assert.ok(!said.includes(form), `${name}: ${said}`);
    if (name === "returns") {
      assert.deepEqual(report["output"], { input: { token: "Bearer [secret TOKEN]", data: "${secret.TOKEN}" }, "[secret TOKEN]": ["[secret TOKEN]"] });
    }
    if (name === "makesProgress") assert.ok(said.includes('"progress":{"token":"Bearer [secret TOKEN]"'), said);
  }
});

test("a missing secret is rejected without effect", async () => {
  const { report } = await played(() => assert.fail("called"), { token: "${secret.A}${secret.B}" });
  assert.deepEqual([report["outcome"], report["effect"], report["error"].code, report["error"].message], ["rejected", "none", "secretMissing",
    "secret A: where the agent runs, the environment variable PERDURE_SECRET_A is not set; " +
    "secret B: where the agent runs, the environment variable PERDURE_SECRET_B is not set"]);
  assert.throws(() => new Host({} as Transport, [new Agent("a").handle("x", { do: () => 1 })], { holder: "h", secretsDir: "/nowhere" }), /no directory/);
});

test("secrets are files or variables", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "perdure-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const write = (name: string, data: string | Buffer): void => writeFileSync(join(dir, name), data);
  write("FILE", "of a file\n");
  write("TWO", "a\n\n");
  write("WINDOWS", "line\r\n");
  write("BOTH", "of the file");
  write("EMPTY", "\n");
  write("BINARY", Buffer.from([0x61, 0xff]));
  write("LARGEST", "x".repeat(maxSecretBytes) + "\r\n");
  write("LARGE", "x".repeat(maxSecretBytes + 1));
  write("HUGE", "x".repeat(1 << 20));
  mkdirSync(join(dir, "DIRECTORY"));
  mkdirSync(join(dir, "..2026"));
  write("..2026/MOUNTED", "mounted");
  symlinkSync("..2026", join(dir, "..data"));
  symlinkSync("..data/MOUNTED", join(dir, "MOUNTED"));
  const secrets = new Secrets(dir, { PERDURE_SECRET_BOTH: "of the variable", PERDURE_SECRET_VARIABLE: "v\n", PERDURE_SECRET_NOTHING: "" });
  for (const [name, value] of Object.entries({ FILE: "of a file", TWO: "a\n", WINDOWS: "line", BOTH: "of the file", VARIABLE: "v\n", MOUNTED: "mounted",
    LARGEST: "x".repeat(maxSecretBytes) })) assert.deepEqual(secrets.get(name), { value });
  for (const [name, why] of Object.entries({ EMPTY: "is empty", BINARY: "not UTF-8", LARGE: "more than 65536 bytes", HUGE: "more than 65536 bytes",
    DIRECTORY: "not a regular file", MISSING: "no file MISSING", NOTHING: "is empty" })) {
    const found = secrets.get(name);
    assert.ok("missing" in found && found.missing.includes(why) && !found.missing.includes(dir), JSON.stringify(found));
  }
  for (const name of ["L2", "L3", "L4", "L5"]) write(name, name.repeat(maxSecretBytes / 2));
  const five = "${secret.LARGEST}${secret.L2}${secret.L3}${secret.L4}${secret.L5}";
  assert.throws(() => secrets.resolve(five, [""]), /secret L5: the secrets of this input have more than 262144 bytes together/);
  assert.equal((secrets.resolve(five.replace("L5", "L4"), [""]).input as string).length, 5 * maxSecretBytes);
  write("FILE", "rotated");
  assert.deepEqual(secrets.get("FILE"), { value: "rotated" });
});

test("only the strings at pointers are resolved", () => {
  const known: Record<string, string> = { A: "al$&pha", REF: "${secret.A}" };
  const valueOf = (name: string): string => known[name]!;
  const cases: [unknown, string[], unknown][] = [
    [{ h: "Bearer ${secret.A}", data: "${secret.A}" }, ["/h"], { h: "Bearer al$&pha", data: "${secret.A}" }],
    [{ l: [1, "${secret.A}", "${secret.A}"] }, ["/l/1"], { l: [1, "al$&pha", "${secret.A}"] }],
    ["${secret.A}", [""], "al$&pha"],
    [{ a: "${secret.REF}" }, ["/a"], { a: "${secret.A}" }],
    [{ a: "$${secret.A} ${secret.a} ${secret.A" }, ["/a"], { a: "$al$&pha ${secret.a} ${secret.A" }],
    [{ "x/y": { "~": "${secret.A}" } }, ["/x~1y/~0"], { "x/y": { "~": "al$&pha" } }],
    [JSON.parse('{"__proto__":"${secret.A}"}'), ["/__proto__"], JSON.parse('{"__proto__":"al$&pha"}')],
  ];
  for (const [input, pointers, want] of cases) assert.deepEqual(fill(input, pointers, valueOf), want);
  for (const input of [{ a: 1 }, { b: "x" }, [], null]) assert.throws(() => fill(input, ["/a"], valueOf), /no text at \/a/);
});

test("numbers and names are redacted", () => {
  assert.equal(Redactor.of(new Map([["PIN", "123"]])), undefined);
  const redactor = Redactor.of(new Map([["PIN", "7316"], ["LONG", "7316-2287"]]))!;
  assert.equal(redactor.json('{"7316":["7316-2287",7316,173160,8,true,null,12345678901234567890]}'),
    '{"[secret PIN]":["[secret LONG]","[secret PIN]","1[secret PIN]0",8,true,null,12345678901234567890]}');
});

test("a redactor knows the forms of other encoders", () => {
  const redactor = Redactor.of(new Map([["KEY", "a/b+c P@ss w0rd!'x\"==<ü>"]]))!;
  for (const form of [
    "a/b+c P@ss w0rd!'x\"==<ü>",
    "a/b+c P@ss w0rd!'x\\\"==<\\u00fc>",
    "a/b+c P@ss w0rd!\\'x\"==<ü>",
    "a/b+c P@ss w0rd!'\"'\"'x\"==<ü>",
    "a/b+c P@ss w0rd!'\\''x\"==<ü>",
    "a/b%2Bc%20P%40ss%20w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
    "a%2Fb%2Bc%20P%40ss%20w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
    "a%2Fb%2Bc+P%40ss+w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
    "a%2Fb%2Bc%20P%40ss%20w0rd!'x%22%3D%3D%3C%C3%BC%3E",
    "a%2fb%2bc%20P%40ss%20w0rd%21%27x%22%3d%3d%3c%c3%bc%3e",
    "a/b+c P@ss w0rd!&#x27;x&quot;==&lt;ü&gt;",
    "a/b+c P@ss w0rd!&#39;x&#34;==&lt;ü&gt;",
    "a/b+c P@ss w0rd!&#39;x&quot;==&lt;ü&gt;",
  ]) {
    assert.equal(redactor.text(`a ${form} b`), "a [secret KEY] b");
  }
  for (const text of [ // base64 of Bearer, of user:, of ab:…:cd, alone, and of xy…z for URLs
    "QmVhcmVyIGEvYitjIFBAc3MgdzByZCEneCI9PTzDvD4=",
    "dXNlcjphL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w+",
    "YWI6YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8PjpjZA==",
    "YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8Pg==",
    "eHlhL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w-eg==",
  ]) {
    assert.match(redactor.text(text), /^.{0,12}\[secret KEY\].{0,8}$/, text);
  }
});
