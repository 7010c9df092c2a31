// One call, over networks as they are: a server that says each answer by the byte. And clocks that are set.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer as createHTTP } from "node:http";
import { type AddressInfo, type Socket, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type TestContext, test } from "node:test";

import { Agent, Client, type ClientOptions, NotDrained, PerdureError, stringify } from "perdure";

import { Host } from "#internal/host";
import { Transport, answerMs } from "#internal/transport";

/** Writes the scripted answers: null closes the connection, "" says nothing. */
async function scripted(t: TestContext, ...answers: (string | null)[]): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    let text = "";
    socket.on("error", () => {});
    socket.on("data", (data) => {
      text += data;
      for (;;) {
        const head = text.indexOf("\r\n\r\n");
        const length = Number(/content-length: (\d+)/i.exec(text.slice(0, head))?.[1] ?? 0);
        if (head < 0 || text.length < head + 4 + length) return;
        requests.push(`${text.slice(0, text.indexOf(" HTTP"))} ${text.slice(head + 4, head + 4 + length)}`.trim());
        text = text.slice(head + 4 + length);
        const answer = answers.shift();
        if (answer === null || answer === undefined) return void socket.destroy();
        socket.write(answer);
      }
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => { server.close(); for (const socket of open) socket.destroy(); });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

function answer(body = '{"ok":1}', status = "200 OK", kind = "application/json", ...more: string[]): string {
  return [`HTTP/1.1 ${status}`, `Content-Type: ${kind}`, `Content-Length: ${Buffer.byteLength(body)}`, ...more, "", body].join("\r\n");
}

function problem(code: string, status: string, ...more: string[]): string {
  return answer(stringify({ title: "T", status: 0, detail: "it is so", code, hint: "do otherwise", errors: [] }), status,
    "application/problem+json", ...more);
}

async function failing(url: string, timeoutMs = 5_000): Promise<PerdureError> {
  try {
    await new Transport(url, {}).ask("GET", "/", { timeoutMs });
  } catch (e) {
    assert.ok(e instanceof PerdureError, String(e));
    return e;
  }
  throw new Error("it was answered");
}

test("answers that are none", async (t) => {
  for (const [reply, words] of [
    [answer("<html>", "502 Bad Gateway", "text/html"), /answered 502/],
    [answer("", "302 Found", "text/plain", "Location: http://elsewhere/"), /elsewhere/],
    [answer("{"), /not Perdure's/],
    [answer().slice(0, -3), /within 300 ms/],
    ["SSH-2.0-OpenSSH\r\n", /cannot be reached/],
    ["", /within 300 ms/],
    [null, /cannot be reached/],
  ] as const) {
    const { url } = await scripted(t, reply);
    const e = await failing(url, words.source.includes("within") ? 300 : 20_000);
    assert.match(e.message, words);
    assert.ok(e.away);
  }
});

test("refusals", async (t) => {
  const { url } = await scripted(t, problem("conflict", "409 Conflict"), problem("backlogFull", "429 Too", "Retry-After: 5"),
    problem("unavailable", "503 Away", "Retry-After: 1000000"));
  const conflict = await failing(url);
  assert.deepEqual([conflict.code, conflict.hint, conflict.status, conflict.away], ["conflict", "do otherwise", 409, false]);
  assert.equal((await failing(url)).retryAfterMs, 5_000);
  assert.equal((await failing(url)).retryAfterMs, 60_000, "bounded");
});

test("two keys of one job are refused", async () => {
  const definition = { type: "t", key: "a", steps: { s: { agent: "x" } } };
  await assert.rejects(new Client("http://127.0.0.1:9").submit(definition, { key: "b" }), /"a", and the call "b": give one/);
});

test("nobody listens, and URLs that are none", async () => {
  assert.match((await failing("http://127.0.0.1:1")).message, /perdure serve/);
  for (const url of ["x", "localhost:7420", "ftp://a", "http://a/?b", "http://user:secret@a"]) {
    assert.throws(() => new Client(url), TypeError);
  }
});

test("an error about a URL does not repeat its password", () => { // I18
  for (const url of ["http://u:hunter2@h", "http://:hunter2@h", "http://u:hunter2", "http://h?password=hunter2", "ftp://u:hunter2@h", "u:hunter2@h"]) {
    assert.throws(() => new Client(url), (e: Error) => e instanceof TypeError && !e.message.includes("hunter2"), url);
  }
});

test("a submission is repeated only if it has a key", async (t) => { // F008
  const keyed = await scripted(t, null, answer('{"id":"job_1"}', "201 Created"));
  const { job, created } = await new Client(keyed.url).submit({ type: "t", key: "k", steps: {} });
  assert.deepEqual([job.id, created, keyed.requests.length], ["job_1", true, 2]);
  assert.equal(keyed.requests[0], keyed.requests[1]);
  for (const definition of [{ type: "t", steps: {} }, "type: t"]) {
    const { url, requests } = await scripted(t, null, null);
    await assert.rejects(new Client(url).submit(definition), { code: "unavailable" });
    assert.equal(requests.length, 1);
  }
});

test("a wait bears an outage, and ends", async (t) => {
  const { url } = await scripted(t, null, problem("unavailable", "503 Away"), answer('{"phase":"running"}'), answer('{"phase":"parked"}'));
  assert.equal((await new Client(url).wait("k")).phase, "parked");
  const never = await scripted(t, answer('{"phase":"running"}'));
  await assert.rejects(new Client(never.url).wait("k", { timeoutMs: 0 }), { name: "TimeoutError" });
});

/** Waits on a clock of its own; what a call takes, and what it answers: null is nothing. Pauses are as good as over.
 * Returns what came of it, how long it took, and the queries. */
async function waited(t: TestContext, answers: [number, Response | null][], options = {}): Promise<[unknown, number, string[]]> {
  let now = 0;
  const queries: string[] = [];
  const mocks = [
    t.mock.method(performance, "now", () => now),
    t.mock.method(globalThis, "setTimeout", (call: () => void, ms: number) => {
      if (ms >= answerMs) return undefined; // the bound of a call
      now += ms;
      queueMicrotask(call);
      return undefined;
    }),
    t.mock.method(globalThis, "fetch", async (url: string) => {
      queries.push(new URL(url).search);
      const [took, answer] = answers.shift()!;
      now += took;
      if (!answer) throw new TypeError("away");
      return answer;
    }),
  ];
  try {
    return [await new Client("http://h").wait("k", options).catch((e: unknown) => e), now, queries];
  } finally {
    for (const m of mocks) m.mock.restore();
  }
}

const json = (value: object): Response => Response.json(value);

test("a stream of events that breaks is opened again", async (t) => {
  const stream = (...events: string[]): string => answer(events.join(""), "200 OK", "text/event-stream");
  const job = (phase: string): string => `:\r\n\r\nevent: job\r\ndata: {"phase":\r\ndata: "${phase}"}\r\n\r\n`;
  const follow = async (url: string): Promise<string[]> => {
    const phases = [];
    for await (const { phase } of new Client(url).follow("k")) phases.push(phase);
    return phases;
  };
  const broken = await scripted(t, stream(job("waiting"), "event: job\ndata: {"), null, problem("unavailable", "503 Away"),
    stream(job("running"), job("parked"), "event: rest\ndata: {}\n\n"));
  assert.deepEqual([await follow(broken.url), broken.requests.length], [["waiting", "running", "parked"], 4]);
  assert.deepEqual(await follow((await scripted(t, stream(job("settled")))).url), ["settled"], "nothing but the end is missing");
  const refused = await scripted(t, stream(job("running"), 'event: problem\ndata: {"code":"tooLarge","detail":"too much"}\n\n'));
  await assert.rejects(follow(refused.url), { code: "tooLarge", message: "too much" });
  await assert.rejects(follow((await scripted(t, problem("notFound", "404 Not Found"))).url), { code: "notFound", status: 404 });
});

test("tokens", async (t) => {
  const seen: (string | undefined)[] = [];
  const server = createHTTP((request, response) => {
    seen.push(request.headers.authorization);
    response.writeHead(200, { "Content-Type": "application/json" }).end('{"id":"job_"}');
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const directory = await mkdtemp(join(tmpdir(), "perdure-"));
  t.after(async () => { server.close(); await rm(directory, { recursive: true }); });
  const file = join(directory, "token");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  /** The Authorization headers of two calls; between them the token file gets another token. */
  const sent = async (options: ClientOptions, environment: Record<string, string> = {}): Promise<(string | undefined)[]> => {
    Object.assign(process.env, environment);
    const client = new Client(url, options);
    for (const name of Object.keys(environment)) delete process.env[name];
    seen.length = 0;
    await writeFile(file, "pdr_1\n");
    await client.get("a");
    await writeFile(file, "pdr_2\n");
    await client.get("a");
    return [...seen];
  };
  assert.deepEqual(await sent({}), [undefined, undefined]);
  assert.deepEqual(await sent({ token: " pdr_1\n" }), ["Bearer pdr_1", "Bearer pdr_1"]);
  assert.deepEqual(await sent({}, { PERDURE_TOKEN: "pdr_3" }), ["Bearer pdr_3", "Bearer pdr_3"]);
  assert.deepEqual(await sent({ token: "pdr_1" }, { PERDURE_TOKEN: "pdr_3" }), ["Bearer pdr_1", "Bearer pdr_1"]);
  assert.deepEqual(await sent({ token: "pdr_1", headers: { Authorization: "Basic x" } }), ["Basic x", "Basic x"]);
  assert.deepEqual(await sent({ tokenFile: file }), ["Bearer pdr_1", "Bearer pdr_2"]);
  assert.deepEqual(await sent({}, { PERDURE_TOKEN_FILE: file }), ["Bearer pdr_1", "Bearer pdr_2"]);
  assert.deepEqual(await sent({}, { PERDURE_TOKEN: "pdr_3", PERDURE_TOKEN_FILE: file }), ["Bearer pdr_1", "Bearer pdr_2"]); // as the command line
  await assert.rejects(sent({}, { PERDURE_TOKEN: "a b" }), { message: /^PERDURE_TOKEN has no token/ });
  delete process.env.PERDURE_TOKEN;
  for (const token of ["a b", "a\nb", "ü"]) assert.throws(() => new Client(url, { token }), (e: Error) => e instanceof PerdureError && !e.message.includes(token));
  assert.throws(() => new Client(url, { token: "a", tokenFile: "b" }), TypeError);
  for (const text of ["", "a b", "x".repeat(5000)]) {
    await writeFile(file, text);
    await assert.rejects(new Client(url, { tokenFile: file }).get("a"), { code: "invalid" });
  }
  await assert.rejects(new Client(url, { tokenFile: join(directory, "none") }).get("a"), { code: "invalid" });
});

test("text in headers", async (t) => {
  const { url, requests } = await scripted(t, answer('{"id":"job_1"}', "201 Created"));
  await new Client(url).submit("type: t", { key: "Zoë" });
  assert.equal(requests.length, 1);
  for (const key of [" a", "a\n"]) await assert.rejects(new Client(url).submit("type: t", { key }), { code: "invalid", message: /cannot be sent in a header/ });
  assert.throws(() => new Client(url, { author: "a\nb" }), { code: "invalid" });
});

test("a call is aborted", async (t) => {
  const { url } = await scripted(t, "", problem("backlogFull", "429 Too", "Retry-After: 30"));
  const during = AbortSignal.timeout(50);
  await assert.rejects(new Client(url).get("k", { signal: during }), { name: "TimeoutError" });
  const between = new AbortController();
  setTimeout(() => between.abort(new Error("enough")), 200);
  await assert.rejects(new Client(url).submit("type: t", { signal: between.signal }), { message: "enough" }); // in the pause before it is repeated
});

test("an outage counts from its begin", async (t) => { // F009
  const rests = { phase: "parked" };
  const [job] = await waited(t, [[59_000, null], [30_000, null], [20_000, null], [0, json(rests)]]);
  assert.deepEqual(job, rests);
  const [last] = await waited(t, [[59_000, null], [30_000, null], [31_000, new Response("", { status: 502, statusText: "Last" })]]);
  assert.match(String(last), /502 Last/);
  // What stands between gives each long poll up: as long as the server is there, that is no outage.
  const cut = Array.from({ length: 5 }, (): [number, Response | null][] => [[60_000, null], [0, json({ phase: "running" })]]).flat();
  const [after, , queries] = await waited(t, [...cut, [0, json(rests)]]);
  assert.deepEqual([after, queries.slice(0, 3)], [rests, ["?wait=60000ms", "", "?wait=60000ms"]]);
});

test("an outage does not outlast the timeout", async (t) => {
  const away = (): Response => new Response("", { status: 503, headers: { "Retry-After": "30" } });
  const [e, took] = await waited(t, [[4_000, away()], [0, away()]], { timeoutMs: 5_000 });
  assert.deepEqual([(e as Error).name, took], ["TimeoutError", 5_000]);
});

test("what is no outage ends a wait", async (t) => {
  const [e, took] = await waited(t, [[0, new Response("<h1>Nothing here</h1>", { status: 404 })]]);
  assert.deepEqual([(e as PerdureError).status, took], [404, 0]);
});

test("a server that is too busy is asked again", async (t) => {
  for (const code of ["backlogFull", "tooManyRequests"]) {
    const busy = problem(code, "429 Too", "Retry-After: 1");
    const { url, requests } = await scripted(t, busy, answer(stringify({ id: "j" })), ...Array<string>(9).fill(busy));
    const client = new Client(url, { patienceMs: 2_500 });
    const began = performance.now();
    await client.submit("type: t"); // text, whose key is not known: nothing was done, so that it may be sent again
    const took = performance.now() - began;
    assert.ok(took > 1_000 && took < 2_000, String(took));
    await assert.rejects(client.submit("type: t"), (e: PerdureError) => e.code === code && e.status === 429);
    assert.ok(requests.length === 4 || requests.length === 5, String(requests.length));
  }
});

test("many go in several calls", async (t) => {
  const { url, requests } = await scripted(t, ...[1000, 500].map((n) => answer(stringify({ results: Array(n).fill({ id: "j" }) }))));
  const jobs = Array.from({ length: 1500 }, (_, i) => ({ key: String(i) }));
  assert.equal((await new Client(url).submitAll(jobs, { type: "t", steps: {} })).length, 1500);
  assert.equal(requests.length, 2);
});

/** A transport that answers claims from a list, and accepts everything. */
class Exchange extends Transport {
  reports: Record<string, unknown>[] = [];
  away = false;
  asked = 0;
  readonly #claims: unknown[][];

  constructor(...claims: unknown[][]) {
    super("http://fake", {});
    this.#claims = claims;
  }

  override async ask(_method: string, path: string, ask: { body?: string; signal?: AbortSignal } = {}): Promise<{ status: number; value: unknown }> {
    const call = JSON.parse(ask.body!);
    if (path.endsWith("/claim")) {
      const runs = this.#claims.shift();
      if (!runs && ask.signal) await new Promise((_, reject) => ask.signal!.addEventListener("abort", () => reject(ask.signal!.reason)));
      return { status: 200, value: { runs: runs ?? [] } };
    }
    this.asked++;
    if (path === "/v1/reports") {
      if (this.away) throw new PerdureError("unavailable", "away");
      this.reports.push(...call.reports);
      return { status: 200, value: { results: call.reports.map(() => ({ accepted: true })) } };
    }
    return { status: 200, value: { runs: call.runs.map((r: object) => ({ ...r, stop: false, remainingMs: 20_000 })) } };
  }
}

function aRun(run = 1): object {
  const until = new Date(Date.now() + 20_000).toISOString();
  return { job: "job_1", step: "s", action: "x", run, direction: "do", input: null, key: "k", lockedUntil: until,
    completeBy: until, remainingMs: 20_000, priority: 0 };
}

test("the wall clock jumps", async () => { // F039: the machine slept, and the monotonic clock stood still
  let jump = 0;
  const exchange = new Exchange([aRun()]);
  const seen: unknown[] = [];
  const agent = new Agent("a").handle("x", {
    async do(_, run) {
      jump = 60_000;
      await new Promise((over) => run.signal.addEventListener("abort", over, { once: true }));
      seen.push(run.reason);
    },
  });
  const host = new Host(exchange, [agent], { holder: "h", log: null, now: () => ({ mono: performance.now(), wall: Date.now() + jump }) });
  host.start();
  while (seen.length === 0) await new Promise((r) => setTimeout(r, 5));
  await host.drain(5_000);
  assert.deepEqual([seen, exchange.reports], [["timeUp"], []], "the time of the run has passed: nothing is said");
});

test("a drain waits for reports", async () => { // F117
  const exchange = new Exchange([aRun()]);
  exchange.away = true;
  const host = new Host(exchange, [new Agent("a").handle("x", { do: () => 1 })], { holder: "h", log: null });
  host.start();
  while (exchange.asked === 0) await new Promise((r) => setTimeout(r, 5));
  await assert.rejects(host.drain(300), NotDrained);
});

test("what cannot be read stops nothing", async () => {
  const exchange = new Exchange([{ nonsense: 1 }, "no run", null, aRun()]);
  const host = new Host(exchange, [new Agent("a").handle("x", { do: () => "fine" })], { holder: "h", log: null });
  host.start();
  while (exchange.reports.length === 0) await new Promise((r) => setTimeout(r, 5));
  await host.drain(5_000);
  assert.deepEqual(exchange.reports.map((r) => r.output), ["fine"]);
});

test("whatever is thrown is reported", async () => { // F126
  const strange = [null, undefined, Object.create(null), Symbol("s"), { toString() { throw new Error("no"); } }];
  const exchange = new Exchange(strange.map((_, i) => aRun(i + 1)));
  const agent = new Agent("a").handle("x", { do(_, run) { throw strange[run.number - 1]; } });
  const host = new Host(exchange, [agent], { holder: "h", log: { debug() {}, info() {}, warn() {}, error() {} } });
  host.start();
  while (exchange.reports.length < strange.length) await new Promise((r) => setTimeout(r, 5));
  await host.drain(5_000);
  assert.ok(exchange.reports.every((r) => r.outcome === "failed"));
});

test("more than there are slots is given back", async () => {
  const exchange = new Exchange([aRun(1), aRun(2)]);
  let go = (): void => {};
  const agent = new Agent("a", { slots: 1 }).handle("x", { do: () => new Promise<void>((resolve) => { go = resolve; }) });
  const host = new Host(exchange, [agent], { holder: "h", log: null });
  host.start();
  while (exchange.reports.length === 0) await new Promise((r) => setTimeout(r, 5));
  go();
  await host.drain(5_000);
  assert.deepEqual(exchange.reports.map((r) => [r.run, r.outcome]), [[2, "returned"], [1, "done"]]);
});

test("wiring", () => {
  const a = new Agent("a");
  assert.throws(() => new Host(new Exchange(), [a], { holder: "h" }), /agent a has no handlers/);
  a.handle("x", { do: () => 1 });
  assert.throws(() => new Host(new Exchange(), [], { holder: "h" }), TypeError);
  assert.throws(() => new Host(new Exchange(), [a, a], { holder: "h" }), /same name/);
  assert.throws(() => new Host(new Exchange(), [a], { holder: "h", heartbeatMs: 10 }), RangeError);
});
