// Asks a server: submit, wait, undo, list; and carries agents against it.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import process from "node:process";

import type { Agent } from "./agent.ts";
import { Backoff, sleep } from "./clock.ts";
import { PerdureError } from "./errors.ts";
import { Host, type Log } from "./host.ts";
import { bytes, stringify } from "./json.ts";
import { type Ask, Transport, answerMs, listIn } from "./transport.ts";
import type { BatchResult, Entry, Job, StepDetail } from "./types.ts";

const maxBatch = 1000; // jobs in a call
const maxBatchBytes = 16 << 20; // of a call's body, and of its definition as often as there are jobs
const maxWaitMs = 60_000; // of one call; a longer wait is several
const outageMs = 60_000; // how long a wait bears a server that does not answer
const attempts = 3; // of what may be repeated, where the server is away for a moment

/** A definition as an object is sent as JSON, as a text it is YAML. */
export type Definition = { type: string; key?: string; steps: object; [field: string]: unknown } | string;

/** What a job of a common definition has of its own. */
export interface JobValues {
  key?: string;
  input?: unknown;
  priority?: number;
  labels?: Record<string, string>;
}

export interface ListFilter {
  phase?: "waiting" | "running" | "parked" | "settled";
  type?: string;
  current?: "undone" | "done" | "unsure";
  desired?: "undone" | "done";
  key?: string;
  labels?: Record<string, string>;
}

export interface ClientOptions {
  /** Who acts, for a job's history. */
  author?: string;
  /** Sent with every request: to a proxy in front of the server that asks for a token, say. */
  headers?: Record<string, string>;
  /** For how long a call is repeated that the server is too busy for (429); 60_000 if nothing is said. */
  patienceMs?: number;
}

export interface HostSettings {
  /** The prefix of the holder's name; by default the host's name. A suffix makes it unique. */
  name?: string;
  /** A run is another's so long after this process has died; 10 s if nothing is said. null: after completeWithin. */
  heartbeatMs?: number | null;
  /** Warnings and errors go to the console if nothing is said. null: nothing is. */
  log?: Log | null;
}

export interface ServeOptions extends HostSettings {
  /** How long the drain may take; 30 s if nothing is said. */
  graceMs?: number;
  /** Its end begins the drain; so do SIGTERM and SIGINT, unless `signals` is false. */
  signal?: AbortSignal;
  signals?: boolean;
}

/** Whether a job is settled (done, or wholly undone) or parked (a person is needed). */
export function atRest(job: Job): boolean {
  return job.phase === "settled" || job.phase === "parked";
}

const maxReasonsTold = 3;

/** Why the first steps of a job are not running; those that only wait for others say nothing new. */
function whyOpen(job?: Job): string {
  const told: string[] = [];
  for (const [name, { why }] of Object.entries(job?.steps ?? {})) {
    if (why && why.reason !== "afterSteps") told.push(`step ${name}: ${why.text}`);
  }
  if (told.length > maxReasonsTold) told.splice(maxReasonsTold, told.length, "…");
  return told.length > 0 ? `: ${told.join("; ")}` : "";
}

/** One server: `url`, or $PERDURE_SERVER, or http://127.0.0.1:7420. What it refuses is thrown as PerdureError. */
export class Client {
  readonly #transport: Transport;
  readonly #patienceMs: number;

  constructor(url = "", options: ClientOptions = {}) {
    this.#patienceMs = options.patienceMs ?? outageMs;
    this.#transport = new Transport(url || process.env.PERDURE_SERVER || "http://127.0.0.1:7420",
      { ...(options.author ? { "Perdure-Author": options.author } : {}), ...options.headers });
  }

  // Jobs.

  /** Stores a job, before it answers. created is false where the key was submitted before, with the same definition (be it
   * by an attempt of this call whose answer was lost).
   *
   * Give the definition a `key`: the same key is the same job, so that it may be submitted again where an answer was lost.
   * An object with a key is, by this call itself, some times. */
  async submit(definition: Definition): Promise<{ job: Job; created: boolean }> {
    const { status, value } = typeof definition === "string"
      ? await this.#ask("POST", "/v1/jobs", { body: definition, contentType: "application/yaml" }, false)
      : await this.#ask("POST", "/v1/jobs", { body: stringify(definition) }, Boolean(definition.key));
    return { job: value as Job, created: status === 201 };
  }

  /** Stores many jobs in few calls, each answered for itself: `{id, key, created}` or `{error}`. With a definition, jobs are
   * what each has of its own. If a call fails, it throws, and those before it are stored. With keys, all may be sent again. */
  submitAll(definitions: Exclude<Definition, string>[]): Promise<BatchResult[]>;
  submitAll(jobs: JobValues[], definition: Exclude<Definition, string>): Promise<BatchResult[]>;
  async submitAll(jobs: JobValues[], definition?: object): Promise<BatchResult[]> {
    const base = definition === undefined ? "" : stringify(definition);
    const head = base ? `{"definition":${base},"jobs":[` : '{"jobs":[';
    const results: BatchResult[] = [];
    for (let from = 0; from < jobs.length;) {
      const items: string[] = [];
      let size = bytes(head) + 2;
      for (; from + items.length < jobs.length && items.length < maxBatch;) {
        const item = stringify(jobs[from + items.length]);
        size += bytes(item) + 1;
        if (items.length > 0 && (size > maxBatchBytes || bytes(base) * (items.length + 1) > maxBatchBytes)) break;
        items.push(item);
      }
      const safe = jobs.slice(from, from + items.length).every((job) => job.key);
      const { value } = await this.#ask("POST", "/v1/batches/submit", { body: `${head}${items.join()}]}` }, safe);
      results.push(...listIn(value, "results", items.length) as BatchResult[]);
      from += items.length;
    }
    return results;
  }

  /** A job with its steps, and why each unsettled one is not running. ref: an id, a key, or "@latest". */
  async get(ref: string): Promise<Job> {
    return (await this.#ask("GET", pathOf(ref), {}, true)).value as Job;
  }

  /** Returns one step with its input and output in full. (In a job, values above 64 KiB are left out.) */
  async step(ref: string, name: string): Promise<StepDetail> {
    return (await this.#ask("GET", `${pathOf(ref)}/steps/${encodeURIComponent(name)}`, {}, true)).value as StepDetail;
  }

  /** Returns the job's definition. Submitted again, it is the same job. */
  async definition(ref: string): Promise<Exclude<Definition, string>> {
    return (await this.#ask("GET", `${pathOf(ref)}/definition`, {}, true)).value as Exclude<Definition, string>;
  }

  /** Waits until the job is at rest: settled or parked. Look at `current`: "done", "undone", or "unsure". Rejects with a
   * DOMException named TimeoutError after timeoutMs, which says what it waits for; the job goes on. A server that is away is waited for, a minute. */
  async wait(ref: string, options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<Job> {
    const end = performance.now() + (options.timeoutMs ?? Infinity);
    const retry = new Backoff(100, 2_000);
    let job: Job | undefined;
    for (let lost: number | undefined; ;) { // since when the server is away
      const asked = performance.now();
      // Of one that is away just a look: what stands between may have cut the wait off, and would again.
      const left = lost === undefined ? Math.ceil(Math.min(maxWaitMs, Math.max(0, end - asked))) : 0;
      try {
        const { value } = await this.#transport.ask("GET", pathOf(ref), {
          ...(left > 0 ? { query: new URLSearchParams({ wait: `${left}ms` }) } : {}),
          ...(options.signal ? { signal: options.signal } : {}), timeoutMs: left + answerMs,
        });
        job = value as Job;
        if (atRest(job)) return job;
        lost = undefined;
        retry.reset();
      } catch (e) {
        const now = performance.now();
        lost ??= now;
        if (!(e instanceof PerdureError && e.away) || now - lost > outageMs) throw e;
        if (e.status > 0 && e.status < 500 && e.code !== "tooManyRequests") throw e; // not a Perdure server
        await sleep(Math.min(retry.draw(e.retryAfterMs), Math.max(0, end - now)), options.signal);
      }
      options.signal?.throwIfAborted();
      if (performance.now() >= end) {
        throw new DOMException(`${ref} was not at rest after ${options.timeoutMs} ms${whyOpen(job)}`, "TimeoutError");
      }
      if (performance.now() - asked < 100) await sleep(100, options.signal);
    }
  }

  /** Jobs, the newest first, without their steps. It asks for more as you go on. */
  async *list(filter: ListFilter = {}): AsyncGenerator<Job, void, undefined> {
    const { labels, ...fields } = filter;
    const query = new URLSearchParams({ ...fields, limit: "500" });
    for (const [name, value] of Object.entries(labels ?? {})) query.append("label", `${name}=${value}`);
    for (;;) {
      const page = (await this.#ask("GET", "/v1/jobs", { query }, true)).value as { items: Job[]; nextCursor?: string };
      yield* page.items;
      if (!page.nextCursor) return;
      query.set("cursor", page.nextCursor);
    }
  }

  /** Returns all of a job's history, oldest first: what went wrong, and who acted on the job. */
  async history(ref: string): Promise<Entry[]> {
    const entries: Entry[] = [];
    const query = new URLSearchParams({ limit: "500" });
    for (;;) {
      const { value } = await this.#ask("GET", `${pathOf(ref)}/history`, { query }, true);
      for (const entry of listIn(value, "items")) entries.push(entry as Entry);
      const { nextCursor } = value as { nextCursor?: string };
      if (!nextCursor) return entries;
      query.set("cursor", nextCursor);
    }
  }

  /** Wants the job undone, from now on: each step that was let out is undone, the last first. What already holds changes
   * nothing. wait() then says when it is. */
  undo(ref: string, reason = ""): Promise<Job> {
    return this.#act(ref, "undo", reason);
  }

  /** Wants the job done, from now on: what is undone is done again. */
  redo(ref: string, reason = ""): Promise<Job> {
    return this.#act(ref, "redo", reason);
  }

  /** Lets what is parked be tried again. */
  resume(ref: string, reason = ""): Promise<Job> {
    return this.#act(ref, "resume", reason);
  }

  /** Ends a job as it stands. Its history names who did so. */
  giveUp(ref: string, reason = ""): Promise<Job> {
    return this.#act(ref, "giveUp", reason);
  }

  async #act(ref: string, verb: string, reason: string): Promise<Job> {
    return await this.call("POST", `${pathOf(ref)}/${verb}`, reason ? { reason } : {}) as Job;
  }

  /** Any other call of docs/rest.md: `client.call("PUT", "/v1/limits/job:order", { max: 10 })`. */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    return (await this.#ask(method, path, body === undefined ? {} : { body: stringify(body) }, method === "GET")).value;
  }

  /** A call, repeated where that is safe and the server is away for a moment. */
  async #ask(method: string, path: string, ask: Ask, safe: boolean): Promise<{ status: number; value: unknown }> {
    const retry = new Backoff(100, 2_000);
    const began = performance.now();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#transport.ask(method, path, ask);
      } catch (e) {
        if (!(e instanceof PerdureError)) throw e;
        const busy = e.code === "backlogFull" || e.code === "tooManyRequests"; // nothing was done
        const wait = retry.draw(busy ? e.retryAfterMs : Math.min(e.retryAfterMs, 5_000));
        if (busy ? performance.now() - began + wait > this.#patienceMs : !safe || attempt >= attempts || !e.away) throw e;
        await sleep(wait);
      }
    }
  }

  // Agents.

  /** An agent host to start() and drain(graceMs) yourself, inside of a program that does other things too. */
  host(agents: Agent[], settings: HostSettings = {}): Host {
    return new Host(this.#transport, agents, {
      holder: holder(settings.name),
      ...(settings.heartbeatMs === undefined ? {} : { heartbeatMs: settings.heartbeatMs }),
      ...(settings.log === undefined ? {} : { log: settings.log }),
    });
  }

  /** Claims runs for the agents, executes them here and reports, until SIGTERM, SIGINT, or the signal's end. Then it drains:
   * what has not started is given back, what runs may finish within the grace. A second SIGTERM kills. Rejects with
   * NotDrained if the grace was over before everything was told. */
  async serve(agents: Agent[], options: ServeOptions = {}): Promise<void> {
    const host = this.host(agents, options);
    const stopped = new AbortController();
    const stop = (): void => stopped.abort();
    const names = options.signals === false ? [] : ["SIGTERM", "SIGINT"] as const;
    const restore = (): void => { for (const name of names) process.off(name, stop); };
    for (const name of names) process.on(name, stop);
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.signal?.aborted) stop();
    try {
      host.start();
      if (!stopped.signal.aborted) {
        await new Promise<void>((resolve) => stopped.signal.addEventListener("abort", () => resolve(), { once: true }));
      }
      restore();
      await host.drain(options.graceMs ?? 30_000);
    } finally {
      restore();
      options.signal?.removeEventListener("abort", stop);
    }
  }
}

/** A name of this incarnation of the process, never used again: what a dead one held is not ours. */
export function holder(name?: string): string {
  return `${(name || hostname() || "node").replace(/^@+/, "").slice(0, 150)}-${process.pid}-${randomUUID().slice(0, 13)}`;
}

function pathOf(ref: string): string {
  if (!ref) throw new PerdureError("invalid", "a job is named by an id, a key, or @latest");
  return `/v1/jobs/${ref === "." || ref === ".." ? ref.replaceAll(".", "%2E") : encodeURIComponent(ref).replace(/^%40/, "@")}`;
}
