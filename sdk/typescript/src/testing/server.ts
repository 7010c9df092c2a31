// A perdure serve of a test's own: the real rules, on a store that is thrown away.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";

import type { Agent } from "../agent.ts";
import { type ActOptions, Client, type Definition, type SubmitOptions, atRest, holder } from "../client.ts";
import { Host, type Log } from "../host.ts";
import type { Job, Phase } from "../types.ts";
import { Fake } from "./fake.ts";
import { type Fault, type FaultOptions, Faults, FaultyTransport, type Refusal } from "./faults.ts";

export interface TestServerOptions {
  /** The program; what perdureBinary finds if nothing is said. */
  binary?: string;
  /** Further arguments of `perdure serve`. */
  args?: string[];
  /** How long a job may take to come to rest; 60_000 ms if nothing is said. */
  patienceMs?: number;
  /** Whether `stop` checks the store with `perdure check`; true if nothing is said. */
  check?: boolean;
}

export interface CarryOptions {
  /** How soon after a fault a run is another's; 2_000 ms if nothing is said. */
  heartbeatMs?: number;
  /** Warnings and errors go to the console if nothing is said. null: nothing does. */
  log?: Log | null;
}

const startMs = 30_000; // until a server answers
const maxLog = 64 << 10; // what is kept of what the server logs
const graceMs = 5_000;
const lookMs = 1_000; // how often a job that is waited for is looked at

/** The program perdure: $PERDURE_BINARY, or the one on the PATH, or bin/perdure here or in a directory above. undefined if
 * there is none, so that a test can be skipped. */
export function perdureBinary(): string | undefined {
  const named = process.env.PERDURE_BINARY;
  if (named) return named;
  const candidates = (process.env.PATH ?? "").split(delimiter).filter(Boolean).map((dir) => join(dir, "perdure"));
  for (let dir = process.cwd(); ; dir = dirname(dir)) {
    candidates.push(join(dir, "bin", "perdure"));
    if (dir === dirname(dir)) break;
  }
  return candidates.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Starts a server on a free port and a new store, and returns once it takes work. End it with `stop()`, or declare it by
 * `await using`. */
export async function startServer(options: TestServerOptions = {}): Promise<TestServer> {
  const binary = options.binary ?? perdureBinary();
  if (!binary) throw new Error("there is no program perdure: put it on the PATH, or say where it is with $PERDURE_BINARY or { binary }");
  const dir = mkdtempSync(join(tmpdir(), "perdure-test-"));
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--store", `sqlite:${join(dir, "perdure.db")}`,
    "--sweep-period", "50ms", ...options.args ?? []], { stdio: ["ignore", "pipe", "pipe"] });
  const kill = (): void => void child.kill("SIGKILL");
  process.once("exit", kill); // it does not outlive a test that ends early
  child.once("exit", () => process.off("exit", kill));
  let log = "";
  let url = "";
  let timer: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`${binary} serve ${why}\n${log}`));
    timer = setTimeout(() => fail(`did not answer within ${startMs} ms`), startMs);
    const read = (chunk: Buffer): void => {
      log = (log + chunk).slice(-maxLog);
      const address = url || /listening on (http:\/\/[^\s,]+)/.exec(log)?.[1];
      if (url || !address) return;
      url = address;
      resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.once("error", (e) => fail(`cannot be started: ${e.message}`));
    child.once("close", (code, signal) => fail(`ended: ${code ?? signal}`)); // once all that it printed is read
  }).catch((e: unknown) => {
    child.kill("SIGKILL");
    rmSync(dir, { recursive: true, force: true });
    throw e;
  }).finally(() => clearTimeout(timer));
  return new TestServer({ binary, dir, child, url, options, log: () => log });
}

interface Parts {
  binary: string;
  dir: string;
  child: ChildProcess;
  url: string;
  options: TestServerOptions;
  log: () => string;
}

/** A server, and the agents of one test. */
export class TestServer {
  readonly url: string;
  readonly client: Client;
  readonly #parts: Parts;
  readonly #faults = new Faults();
  readonly #hosts: Host[] = [];
  readonly #carried = new Set<string>();
  #stopped: Promise<void> | undefined;

  /** startServer makes one. */
  constructor(parts: Parts) {
    this.#parts = parts;
    this.url = parts.url;
    this.client = new Client(parts.url, { author: "test" });
  }

  /** What the server has logged: the last 64 KiB. */
  get log(): string {
    return this.#parts.log();
  }

  /** Reports that were not accepted so far. */
  get refused(): readonly Refusal[] {
    return this.#faults.refused;
  }

  /** Carries agents, as a process of their own would. */
  carry(agents: Agent | Agent[], options: CarryOptions = {}): Host {
    const host = new Host(new FaultyTransport(this.url, this.#faults), [agents].flat(),
      { holder: holder("test"), heartbeatMs: options.heartbeatMs ?? 2_000, ...(options.log === undefined ? {} : { log: options.log }) });
    this.#hosts.push(host);
    for (const { name } of [agents].flat()) this.#carried.add(name);
    host.start();
    return host;
  }

  /** Carries a fake agent of this name, which takes every action. */
  fake(name: string, options: CarryOptions = {}): Fake {
    const fake = new Fake(name);
    this.carry(fake, options);
    return fake;
  }

  /** Lets a fault befall a step's first do run of each job, or the runs that the options say. `stop` throws if it was never
   * met. */
  inject(step: string, fault: Fault, options: FaultOptions = {}): void {
    this.#faults.inject(step, fault, options);
  }

  /** Submits a job. */
  async submit(definition: Definition, options: SubmitOptions = {}): Promise<TestJob> {
    const { job } = await this.client.submit(definition, options);
    return new TestJob(this.client, job.id, this.#parts.options.patienceMs ?? 60_000, this.#carried);
  }

  /** Drains the agents, kills the server, checks the store, and throws away its files. Throws if a fault was never met, or if
   * `perdure check` finds something. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    const { child, dir, binary, options } = this.#parts;
    try {
      await Promise.allSettled(this.#hosts.map((host) => host.drain(graceMs)));
      await ended(child);
      if (options.check !== false) {
        try {
          await promisify(execFile)(binary, ["check", "--store", `sqlite:${join(dir, "perdure.db")}`]);
        } catch (e) {
          throw new Error(`perdure check: ${(e as { stdout?: string }).stdout || (e as Error).message}`);
        }
      }
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
    const unmet = this.#faults.unmet;
    if (unmet.length > 0) throw new Error(`faults that were never met: ${unmet.join(", ")}`);
  }
}

/** Kills the server, as a power cut does: what it has answered is in the store, which is thrown away. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise((resolve) => {
    child.once("exit", resolve);
    child.kill("SIGKILL");
  });
}

/** A job of a test. What it waits for throws an Error that says where each step is, if the job ends otherwise. */
export class TestJob {
  readonly id: string;
  readonly #client: Client;
  readonly #patienceMs: number;
  readonly #carried: ReadonlySet<string>;

  /** TestServer.submit makes one. carried: the agents of the test. */
  constructor(client: Client, id: string, patienceMs: number, carried: ReadonlySet<string>) {
    this.id = id;
    this.#client = client;
    this.#patienceMs = patienceMs;
    this.#carried = carried;
  }

  /** The job as it is. */
  get(): Promise<Job> {
    return this.#client.get(this.id);
  }

  /** Waits until the job is at rest: settled or parked. Throws at once if all that is left of the job waits for an agent that
   * neither the test carries nor any other process. */
  async rest(): Promise<Job> {
    for (const end = performance.now() + this.#patienceMs; ;) {
      const job = await this.get();
      if (atRest(job)) return job;
      this.#checkAgents(job);
      const left = Math.min(lookMs, end - performance.now());
      if (left <= 0) throw new Error(`the job is not at rest after ${this.#patienceMs} ms:\n${describeJob(job)}`);
      try {
        return await this.#client.wait(this.id, { timeoutMs: left });
      } catch (e) {
        if (!(e instanceof DOMException && e.name === "TimeoutError")) throw e;
      }
    }
  }

  #checkAgents(job: Job): void {
    const open = Object.values(job.steps ?? {}).filter((step) => step.phase !== "settled" && step.why?.reason !== "afterSteps");
    if (job.completeBy || open.length === 0) return;
    if (open.every((step) => step.why?.reason === "noAgent" && !this.#carried.has(step.agent))) {
      const names = [...new Set(open.map((step) => step.agent))].join(", ");
      throw new Error(`the job waits for an agent that nothing carries: ${names}. server.carry(agent) or server.fake(name) carries one:\n${describeJob(job)}`);
    }
  }

  /** Waits for the job to rest, with all of its steps done. */
  done(): Promise<Job> {
    return this.#restsAs("done");
  }

  /** Waits for the job to rest, with all of its steps undone. */
  undone(): Promise<Job> {
    return this.#restsAs("undone");
  }

  async #restsAs(state: "done" | "undone"): Promise<Job> {
    const job = await this.rest();
    if (job.phase !== "settled" || job.current !== state) throw new Error(`the job is not ${state}:\n${describeJob(job)}`);
    return job;
  }

  /** Waits for the job to rest, with just these steps parked. */
  async parked(...steps: string[]): Promise<Job> {
    const job = await this.rest();
    const parked = Object.entries(job.steps ?? {}).filter(([, step]) => step.phase === "parked").map(([name]) => name);
    if (parked.sort().join() !== [...steps].sort().join()) throw new Error(`parked: ${parked.join(", ") || "none"}, want ${steps.join(", ")}:\n${describeJob(job)}`);
    return job;
  }

  /** Waits until a step is in that phase. */
  async until(step: string, phase: Phase): Promise<Job> {
    for (const end = performance.now() + this.#patienceMs; ;) {
      const job = await this.get();
      if (job.steps?.[step]?.phase === phase) return job;
      if (!job.steps?.[step] || performance.now() >= end) throw new Error(`step ${step} is not ${phase}:\n${describeJob(job)}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async undo(reason = "", options: ActOptions = {}): Promise<this> {
    await this.#client.undo(this.id, reason, options);
    return this;
  }

  async redo(reason = "", options: ActOptions = {}): Promise<this> {
    await this.#client.redo(this.id, reason, options);
    return this;
  }

  async resume(reason = "", options: ActOptions = {}): Promise<this> {
    await this.#client.resume(this.id, reason, options);
    return this;
  }
}

/** Where a job is, a line for each step. */
export function describeJob(job: Job): string {
  const lines = [`${job.key ?? job.id}: ${job.phase}, ${job.current}, wants ${job.desired}`];
  for (const [name, step] of Object.entries(job.steps ?? {})) {
    const why = step.why ? `: ${step.why.text}` : "";
    const error = step.lastError ? ` (last error: ${step.lastError.message})` : "";
    lines.push(`  ${name}: ${step.phase}, ${step.current}, wants ${step.desired}, run ${step.run}${why}${error}`);
  }
  return lines.join("\n");
}
