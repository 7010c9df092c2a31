// The part of a process that carries agents: it claims runs, executes each within the time that it has, and reports how
// it ended.
//
// One rule is above all others: once the time of a run has passed, the host says nothing about it any more. Time is
// counted from before the question was asked, so that the host errs early only.

import { randomUUID } from "node:crypto";

import { type Agent, type Outcome, Run, messageOf, reportOf } from "./agent.ts";
import { type Store, offload } from "./artifact.ts";
import { Backoff, type Instant, add, earlier, later, left, maxMs, millis, now, reached, sleep } from "./clock.ts";
import { Cancelled, Failed, NotDrained, PerdureError } from "./errors.ts";
import { bytes, parse, stringify } from "./json.ts";
import { type Redactor, type Resolved, Secrets } from "./secret.ts";
import { type Transport, isObject, listIn } from "./transport.ts";
import type { BeatResult, BeatsAnswer, BeatsBody, ClaimAnswer, ClaimBody, Heartbeat, RawRun, RefusalReason, Report, ReportResult, ReportsAnswer,
  ReportsBody } from "./types.ts";

const maxBatch = 1000; // reports or heartbeats in a call
const batchBytes = 4 << 20; // of reports in one call; one report alone may be larger
const senders = 2; // a slow call with reports does not hold up what became ready after it
const claimMarginMs = 15_000; // how much longer than its wait a claim may take
const reportMs = 10_000;
const retrieveMs = 2_000; // for asking, in a drain, what a lost claim has brought
const fruitlessMs = 1_000; // a claim that started nothing and took less is not repeated at once
const rememberAtLeast = 8192;

/** Why a heartbeat says that a run is not this host's any more. Other reasons to stop are acts, such as undo. */
const notOurs: Record<RefusalReason, true> = { late: true, stale: true, unknown: true, forbidden: true, invalid: true, conflict: true };

export interface Log {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** An agent, and how much of it is in use. */
interface Hosted {
  agent: Agent;
  busy: number; // handlers that work on a run that is ours
  held: number; // runs that are live: busy, unreported, or past their time and still not back
}

/** A run that this host has to do with, from its arrival until the answer to its report. */
interface Live {
  run: Run;
  raw: RawRun;
  hosted: Hosted;
  lock: Instant; // the run is ours until then, and never after
  ultimatum: Instant; // the lock never moves past it
  running: boolean;
  lost: boolean; // not ours any more: nothing is said about it
  report?: string | undefined;
  mended: boolean; // its report was refused as invalid once, and replaced
  progress?: string | undefined;
  redactor?: Redactor | undefined; // of its secrets
  unresolved?: unknown; // the error of a secret that is missing
}

/** Until when a run is ours, and how far that can be moved. */
interface Term {
  lock: Instant;
  ultimatum: Instant;
  over: boolean; // it is not ours any more
  unwanted: boolean; // it is ours, and the job has turned meanwhile
}

interface Arrival {
  runs: RawRun[];
  sent: Instant;
  ended: Instant;
}

export interface HostOptions {
  holder: string;
  heartbeatMs?: number | null;
  claimWaitMs?: number;
  secretsDir?: string;
  log?: Log | null;
  /** Stores large values of outputs as artifacts; undefined: outputs are reported as they are. */
  store?: Store;
  now?: () => Instant;
}

/** Carries agents until it is drained. */
export class Host {
  readonly #transport: Transport;
  readonly #holder: string;
  readonly #heartbeatMs: number | null;
  readonly #claimWaitMs: number;
  readonly #log: Log | null;
  readonly #now: () => Instant;
  readonly #secrets: Secrets;
  readonly #store: Store | undefined;
  readonly #hosted: Hosted[];
  readonly #live = new Map<string, Live>();
  readonly #recent = new Set<string>();
  readonly #claiming = new AbortController(); // aborts when a drain begins
  readonly #life = new AbortController(); // aborts at the end
  readonly #waiters = new Set<() => void>();
  #outbox: Live[] = [];
  #claimers = 0;
  #watch: NodeJS.Timeout | undefined;

  constructor(transport: Transport, agents: readonly Agent[], options: HostOptions) {
    if (agents.length === 0) throw new TypeError("there is no agent to carry");
    if (new Set(agents.map((a) => a.name)).size < agents.length) throw new TypeError("two agents have the same name");
    for (const { name, actions } of agents) {
      if (actions.length === 0) throw new TypeError(`agent ${name} has no handlers: agent.handle("NAME", { do, undo })`);
    }
    this.#heartbeatMs = options.heartbeatMs === undefined ? 10_000 : options.heartbeatMs;
    if (this.#heartbeatMs !== null && !(this.#heartbeatMs >= 100)) {
      throw new RangeError("a heartbeat is at least 100 ms; null: no heartbeats");
    }
    this.#secrets = new Secrets(options.secretsDir);
    this.#store = options.store;
    this.#transport = transport;
    this.#holder = options.holder;
    this.#claimWaitMs = Math.min(options.claimWaitMs ?? 20_000, 60_000);
    this.#log = options.log === undefined ? defaultLog : options.log;
    this.#now = options.now ?? now;
    this.#hosted = agents.map((agent) => ({ agent, busy: 0, held: 0 }));
  }

  start(): void {
    for (const hosted of this.#hosted) {
      this.#claimers++;
      void this.#claimLoop(hosted);
    }
    for (let i = 0; i < senders; i++) void this.#sendLoop();
    if (this.#heartbeatMs !== null) void this.#beatLoop(this.#heartbeatMs);
    this.#look();
  }

  // Claims.

  async #claimLoop(hosted: Hosted): Promise<void> {
    const idle = new Backoff(20, fruitlessMs);
    const draining = this.#claiming.signal;
    for (;;) {
      await this.#until(() => free(hosted) > 0 || draining.aborted);
      if (draining.aborted) break;
      const request = randomUUID();
      const began = performance.now();
      const got = await this.#claim(hosted, free(hosted), request);
      if (!got) {
        await this.#retrieve(hosted, request);
        break;
      }
      if ((await this.#arrived(hosted, got)) > 0 || performance.now() - began >= fruitlessMs) idle.reset();
      else if (!(await idle.pause(draining))) break; // one that brings what is known again: never a busy loop
    }
    this.#claimers--;
    this.#changed();
  }

  /** Asks until there is an answer: under one requestId, so that the runs of an answer that was lost come again.
   * Undefined if the host stops claiming before that. */
  async #claim(hosted: Hosted, max: number, requestId: string): Promise<Arrival | undefined> {
    const retry = new Backoff(100, 5_000);
    const draining = this.#claiming.signal;
    for (let failed = ""; !draining.aborted;) {
      try {
        const got = await this.#askForRuns(hosted, max, this.#claimWaitMs, requestId, draining);
        if (failed) this.#log?.info(`perdure: claims of ${hosted.agent.name} are answered again`);
        return got;
      } catch (e) {
        if (draining.aborted) return undefined;
        if (failed !== messageOf(e)) this.#log?.warn(`perdure: claim failed; retrying (${hosted.agent.name}): ${messageOf(e)}`);
        failed = messageOf(e);
        if (!(await retry.pause(draining, retryAfter(e)))) return undefined;
      }
    }
    return undefined;
  }

  async #askForRuns(hosted: Hosted, max: number, waitMs: number, requestId: string, signal?: AbortSignal): Promise<Arrival> {
    const sent = this.#now();
    const { value } = await this.#transport.ask("POST", `/v1/agents/${encodeURIComponent(hosted.agent.name)}/claim`, {
      body: stringify({ holder: this.#holder, max, wait: `${waitMs}ms`, requestId, secrets: true,
        ...(this.#heartbeatMs === null ? {} : { heartbeat: `${Math.round(this.#heartbeatMs)}ms` }) } satisfies ClaimBody),
      timeoutMs: waitMs ? waitMs + claimMarginMs : retrieveMs,
      ...(signal ? { signal } : {}),
    });
    return { runs: listIn(value as ClaimAnswer, "runs"), sent, ended: this.#now() };
  }

  /** Asks what a claim whose answer is not known has brought, so that it can be given back at once instead of expiring.
   * If it has brought nothing this may claim one run anew, which is given back the same way. */
  async #retrieve(hosted: Hosted, requestId: string): Promise<void> {
    try {
      await this.#arrived(hosted, await this.#askForRuns(hosted, 1, 0, requestId));
    } catch (e) {
      this.#log?.debug(`perdure: claim of ${hosted.agent.name} at the begin of the drain: answer not known: ${messageOf(e)}`);
    }
  }

  /** Admits what a claim has brought, and says how many runs it started.
   *
   * When the answer was given is known only between bounds: not before the claim was sent, nor before it had waited for
   * as long as the answer says. Time counts from there. Where that leaves open much of the time that a run has, because
   * the answer was slow, a heartbeat tells how the run stands. */
  async #arrived(hosted: Hosted, got: Arrival): Promise<number> {
    const took = got.ended.mono - got.sent.mono;
    const arrived: [RawRun, Term][] = [];
    const unclear = new Map<string, [RawRun, Term]>();
    for (const raw of got.runs) {
      if (!readable(raw)) {
        this.#log?.error(`perdure: a run of ${hosted.agent.name} cannot be read, and will expire`);
        continue;
      }
      const waited = Math.min(millis(raw.waitedMs), took);
      const one: [RawRun, Term] = [raw, termOf(raw, add(got.sent, waited), raw.remainingMs, raw.lockedUntil)];
      arrived.push(one);
      if (took - waited > millis(raw.remainingMs) / 10) unclear.set(handleOf(raw), one);
    }
    if (unclear.size > 0) await this.#confirm(unclear);
    return arrived.filter(([raw, term]) => !term.over && this.#admit(hosted, raw, term)).length;
  }

  /** Asks by heartbeat how runs that have just arrived stand. Without an answer they keep their terms. */
  async #confirm(unclear: Map<string, [RawRun, Term]>): Promise<void> {
    const sent = this.#now();
    let answers: BeatResult[];
    try {
      answers = await this.#beatCall([...unclear.values()].map(([raw]) => stringify(namesOf(raw))), claimMarginMs);
    } catch (e) {
      this.#log?.debug(`perdure: heartbeat before the start failed: ${messageOf(e)}`);
      return;
    }
    for (const answer of answers) {
      const [raw, term] = unclear.get(handleOf(answer)) ?? [];
      if (!raw || !term) continue;
      if (answer.stop && (answer.reason ?? "") in notOurs) {
        term.over = true;
        this.#log?.warn(`perdure: run discarded, it is not ours any more: ${nameOf(raw)}`);
      } else if (typeof answer.remainingMs === "number") {
        Object.assign(term, termOf(raw, sent, answer.remainingMs, answer.lockedUntil), { unwanted: answer.stop === true });
      }
    }
  }

  /** Starts a run, unless it is known, or its time is used up, or nothing will come of it here: the job has
   * turned, the host drains, no slot is free. Then it is given back. */
  #admit(hosted: Hosted, raw: RawRun, term: Term): boolean {
    const handle = handleOf(raw);
    if (this.#live.has(handle) || this.#recent.has(handle)) {
      this.#log?.warn(`perdure: run arrived again, not started again: ${nameOf(raw)}`);
      return false;
    }
    if (reached(term.lock, this.#now())) {
      this.#remember(handle);
      this.#log?.warn(`perdure: run discarded, its time was used up before it could start: ${nameOf(raw)}`);
      return false;
    }
    let resolved: Resolved = { input: raw.input };
    let unresolved: unknown;
    try {
      resolved = this.#secrets.resolve(raw.input, raw.secrets ?? []);
    } catch (error) {
      unresolved = error;
    }
    const { redactor } = resolved;
    const run = new Run(hosted.agent.name, { ...raw, input: resolved.input }, () => live.ultimatum,
      (progress) => { live.progress = redactor?.json(progress) ?? progress; });
    const live: Live = { run, raw, hosted, lock: term.lock, ultimatum: term.ultimatum, running: false, lost: false, mended: false, redactor, unresolved };
    this.#live.set(handle, live);
    hosted.held++;
    this.#look();
    if (term.unwanted || this.#claiming.signal.aborted || hosted.busy >= hosted.agent.slots) {
      this.#log?.info(`perdure: run given back unstarted: ${nameOf(raw)}`);
      this.#post(live, stringify({ ...namesOf(raw), outcome: "returned" } satisfies Report));
      return false;
    }
    hosted.busy++;
    live.running = true;
    void this.#execute(live);
    return true;
  }

  // Runs.

  async #execute(live: Live): Promise<void> {
    let outcome: Outcome;
    try {
      if (live.unresolved !== undefined) throw live.unresolved;
      outcome = { output: await this.#offloaded(live, await live.hosted.agent.execute(live.run)) };
    } catch (error) {
      outcome = { error };
      if (!(error instanceof Failed || error instanceof Cancelled)) {
        const text = (error instanceof Error ? error.stack : undefined) ?? messageOf(error);
        this.#log?.error(`perdure: handler failed: ${nameOf(live.raw)}: ${live.redactor?.text(text) ?? text}`);
      }
    }
    const report = reportOf(live.run, outcome, live.redactor);
    live.running = false;
    if (live.lost) return this.#forget(live);
    this.#vacate(live.hosted);
    this.#post(live, report);
  }

  /** The output of a run, of which large values are stored as artifacts, without secrets. */
  async #offloaded(live: Live, output: unknown): Promise<unknown> {
    if (!this.#store || live.run.direction !== "do") return output;
    let text: string;
    try {
      text = stringify(output);
    } catch {
      return output; // what has no JSON form is reported as such
    }
    try {
      return parse(await offload(live.redactor?.json(text) ?? text, this.#store));
    } catch (e) {
      if (!(e instanceof PerdureError)) throw e;
      throw new Failed(`the output could not be stored as an artifact: ${e.message}`, { code: e.code, cause: e });
    }
  }

  #post(live: Live, report: string): void {
    live.report = report;
    this.#outbox.push(live);
    this.#changed();
  }

  #vacate(hosted: Hosted): void {
    hosted.busy--;
    this.#changed();
  }

  /** Ends a run that this host no longer holds. Its slot is free from here on, even if its handler goes on. */
  #lose(live: Live, reason: "timeUp" | "notOurs"): void {
    live.lost = true;
    live.report = undefined;
    this.#log?.warn(`perdure: run given up (${reason}): ${nameOf(live.raw)}`);
    if (!live.running) return this.#forget(live);
    this.#vacate(live.hosted);
    live.run.cancel(reason);
  }

  #forget(live: Live): void {
    const handle = handleOf(live.raw);
    this.#live.delete(handle);
    this.#remember(handle);
    live.hosted.held--;
    this.#changed();
  }

  #remember(handle: string): void {
    this.#recent.add(handle);
    if (this.#recent.size > rememberAtLeast) this.#recent.delete(this.#recent.values().next().value!);
  }

  /** Ends runs whose lock has passed, on either clock, and looks again when the next one does. */
  #look(): void {
    clearTimeout(this.#watch);
    if (this.#life.signal.aborted) return;
    const at = this.#now();
    let pause = 1_000; // the wall clock is checked once a second
    for (const live of [...this.#live.values()]) {
      if (live.lost) continue;
      if (reached(live.lock, at)) this.#lose(live, "timeUp");
      else pause = Math.min(pause, left(live.lock, at) + 1);
    }
    this.#watch = setTimeout(() => this.#look(), pause);
  }

  // Heartbeats.

  /** Beats for all live runs every third of what was promised: one beat may be lost, and the next still comes in time.
   * It goes on through the drain, until the end. */
  async #beatLoop(heartbeatMs: number): Promise<void> {
    while (await sleep(heartbeatMs / 3, this.#life.signal)) {
      const all = [...this.#live.values()].filter((live) => !live.lost);
      const calls: Promise<void>[] = [];
      for (let i = 0; i < all.length; i += maxBatch) calls.push(this.#beat(all.slice(i, i + maxBatch), heartbeatMs * 2 / 3));
      await Promise.all(calls);
    }
  }

  async #beat(lives: Live[], timeoutMs: number): Promise<void> {
    const sending = new Map(lives.map((live) => [live, live.progress]));
    const beats = lives.map((live) => {
      const beat = stringify(namesOf(live.raw));
      return live.progress === undefined ? beat : `${beat.slice(0, -1)},"progress":${live.progress}}`;
    });
    const sent = this.#now();
    let answers: BeatResult[];
    try {
      answers = await this.#beatCall(beats, timeoutMs);
    } catch (e) {
      if (!this.#life.signal.aborted) this.#log?.warn(`perdure: heartbeat failed: ${messageOf(e)}`);
      return;
    }
    for (const [live, progress] of sending) if (live.progress === progress) live.progress = undefined;
    for (const answer of answers) {
      const live = this.#live.get(handleOf(answer));
      if (live && !live.lost) this.#heed(live, answer, sent);
    }
    this.#look();
  }

  async #beatCall(beats: string[], timeoutMs: number): Promise<BeatResult[]> {
    const { value } = await this.#transport.ask("POST", "/v1/heartbeats",
      { body: this.#set("runs", beats), timeoutMs, signal: this.#life.signal });
    return listIn(value as BeatsAnswer, "runs").filter(isObject);
  }

  #set(name: keyof BeatsBody | keyof ReportsBody, items: string[]): string {
    return `{"holder":${stringify(this.#holder)},"${name}":[${items.join()}]}`;
  }

  /** Applies the answer to a heartbeat. A lost run is never revived, and no heartbeat extends a run beyond its
   * deadline. */
  #heed(live: Live, answer: BeatResult, sent: Instant): void {
    if (answer.stop === true && (answer.reason ?? "") in notOurs) {
      if (live.report === undefined) this.#lose(live, "notOurs"); // else the answer to its report is what counts
      return;
    }
    if (typeof answer.remainingMs !== "number") return;
    const term = termOf(live.raw, sent, answer.remainingMs, answer.lockedUntil);
    if (answer.lockedUntil) live.ultimatum = later(live.ultimatum, term.ultimatum); // both err early: the later is nearer
    live.lock = earlier(later(live.lock, term.lock), live.ultimatum);
    if (answer.stop === true && live.report === undefined && !live.run.signal.aborted) {
      // Still ours: what the handler says about it is reported, so that the step can turn at once.
      this.#log?.info(`perdure: run told to stop (${answer.reason}): ${nameOf(live.raw)}`);
      live.run.cancel("stopped");
    }
  }

  // Reports.

  async #sendLoop(): Promise<void> {
    for (;;) {
      await this.#until(() => this.#outbox.length > 0 || this.#life.signal.aborted);
      if (this.#life.signal.aborted) return;
      const batch: Live[] = [];
      for (let size = 0; this.#outbox.length > 0 && batch.length < maxBatch; this.#outbox.shift()) {
        const live = this.#outbox[0]!;
        if (live.report === undefined) continue;
        size += bytes(live.report);
        if (batch.length > 0 && size > batchBytes) break;
        batch.push(live);
      }
      await this.#deliver(batch);
    }
  }

  /** Repeats a call until it is answered, or until none of its runs is ours any more. The same report twice does
   * no harm. */
  async #deliver(batch: Live[]): Promise<void> {
    const retry = new Backoff(50, 2_000);
    for (let failed = 0; !this.#life.signal.aborted; failed++) {
      batch = this.#ours(batch);
      if (batch.length === 0) return;
      try {
        const { value } = await this.#transport.ask("POST", "/v1/reports",
          { body: this.#set("reports", batch.map((live) => live.report!)), timeoutMs: reportMs, signal: this.#life.signal });
        return this.#answered(batch, listIn(value as ReportsAnswer, "results", batch.length));
      } catch (e) {
        if (this.#life.signal.aborted) return;
        if (e instanceof PerdureError && ["invalid", "malformed", "tooLarge"].includes(e.code)) {
          // One of them spoils the call: alone, only that one is lost.
          if (batch.length === 1) return this.#answered(batch, [{ accepted: false, reason: "invalid", message: e.message }]);
          for (const live of batch) await this.#deliver([live]);
          return;
        }
        if (failed === 0) this.#log?.warn(`perdure: report failed; retrying (${batch.length} reports): ${messageOf(e)}`);
        if (!(await retry.pause(this.#life.signal, retryAfter(e)))) return;
      }
    }
  }

  /** Drops the runs whose time has passed. */
  #ours(batch: Live[]): Live[] {
    const at = this.#now();
    for (const live of batch) if (!live.lost && reached(live.lock, at)) this.#lose(live, "timeUp");
    return batch.filter((live) => live.report !== undefined);
  }

  #answered(batch: Live[], results: ReportResult[]): void {
    for (const [i, live] of batch.entries()) {
      if (live.lost) continue; // its time passed while the call was under way
      const result = results[i];
      if (!isObject(result) || result.accepted !== true) {
        this.#log?.warn(`perdure: report refused: ${JSON.stringify(result)}: ${nameOf(live.raw)}`);
        if (isObject(result) && result.reason === "invalid" && !live.mended) {
          // If the server cannot keep the output, the run must not be left to expire.
          live.mended = true;
          const error = new Failed(`the output was refused: ${result.message}`, { code: "outputInvalid" });
          this.#post(live, reportOf(live.run, { error }));
          continue;
        }
      }
      this.#forget(live);
    }
  }

  // The way out.

  /** Ends the host in an orderly way: claims no more; gives back what has not started; lets handlers finish until the grace
   * is over, less a quarter of it but at most 3 s; then aborts their signals, and reports what they leave as returned,
   * effect unknown, which counts no failure. Heartbeats are last to stop. Rejects with NotDrained. */
  async drain(graceMs: number): Promise<void> {
    const end = performance.now() + graceMs;
    const tail = Math.min(graceMs / 4, 3_000);
    const idle = (): boolean => this.#claimers === 0 && this.#running() === 0;
    this.#claiming.abort();
    this.#changed();
    if (!(await this.#until(idle, end - tail))) {
      for (const live of this.#live.values()) {
        if (live.running && !live.lost) {
          this.#log?.info(`perdure: run cut short by the drain: ${nameOf(live.raw)}`);
          live.run.cancel("draining");
        }
      }
      await this.#until(idle, end - tail / 3);
    }
    await this.#until(() => this.#unreported() === 0, end);
    const running = this.#running();
    const unreported = this.#unreported();
    this.#life.abort();
    clearTimeout(this.#watch);
    this.#changed();
    if (running + unreported > 0) {
      throw new NotDrained(`${running} handlers did not return, ${unreported} reports were not answered`);
    }
  }

  #running(): number {
    return this.#hosted.reduce((n, hosted) => n + hosted.busy, 0);
  }

  #unreported(): number {
    return [...this.#live.values()].filter((live) => live.report !== undefined).length;
  }

  #changed(): void {
    for (const look of [...this.#waiters]) look();
  }

  /** Waits until it is so; false if the end came first. */
  #until(so: () => boolean, end?: number): Promise<boolean> {
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const done = (is: boolean): void => {
        clearTimeout(timer);
        this.#waiters.delete(look);
        resolve(is);
      };
      const look = (): void => { if (so()) done(true); };
      this.#waiters.add(look);
      if (end !== undefined) timer = setTimeout(() => done(so()), Math.max(0, end - performance.now()));
      look();
    });
  }
}

/** How many runs may be claimed. Those that have left their slot (because their report is not answered yet, or because
 * their handler goes on after their time) do not count unless they pile up to as many again. */
function free(hosted: Hosted): number {
  return Math.min(hosted.agent.slots - hosted.busy, 2 * hosted.agent.slots - hosted.held);
}

/** Counts the remaining time from an instant at or before the server's own reading. How far the ultimatum is from the
 * lock's end is the server's to say; a lock beyond the ultimatum is none. */
function termOf(raw: RawRun, since: Instant, remainingMs: number, lockedUntil: unknown): Term {
  const lock = add(since, millis(remainingMs));
  const beyond = lockedUntil ? Date.parse(raw.completeBy) - Date.parse(String(lockedUntil)) : 0;
  const ultimatum = Number.isNaN(beyond) ? lock : add(lock, Math.max(-maxMs, Math.min(beyond, maxMs)));
  return { lock: earlier(lock, ultimatum), ultimatum, over: false, unwanted: false };
}

function readable(raw: unknown): raw is RawRun {
  return isObject(raw) && ["job", "step", "action", "key", "completeBy"].every((name) => typeof raw[name] === "string")
    && typeof raw.run === "number" && typeof raw.remainingMs === "number" && (raw.direction === "do" || raw.direction === "undo");
}

const namesOf = (raw: RawRun) => ({ job: raw.job, step: raw.step, run: raw.run }) satisfies Heartbeat;
const handleOf = (raw: { job?: unknown; step?: unknown; run?: unknown }): string => `${raw.job} ${raw.step} ${raw.run}`;
const nameOf = (raw: RawRun): string => `job ${raw.job}, step ${raw.step}, run ${raw.run}, ${raw.direction}`;
const retryAfter = (e: unknown): number => (e instanceof PerdureError ? e.retryAfterMs : 0);

const defaultLog: Log = {
  debug() {},
  info() {},
  warn: (message) => console.warn(message),
  error: (message) => console.error(message),
};
