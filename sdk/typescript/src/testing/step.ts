// One step in memory: its runs are dispatched, fail, expire and are repeated as Perdure would do it, in virtual time. The rules
// of whole jobs (order, the failure ladder, expressions) are the server's: startServer has a real one.

import { randomUUID } from "node:crypto";

import { type Agent, type Outcome as HandlerOutcome, Run, reportOf } from "../agent.ts";
import { add } from "../clock.ts";
import type { RetryDefinition } from "../definition.ts";
import type { CancelReason } from "../errors.ts";
import { parse, stringify } from "../json.ts";
import type { Direction, Outcome, RawRun, Report, RunError, State } from "../types.ts";
import { VirtualClock } from "./clock.ts";
import { durationMs } from "./duration.ts";

/** What goes wrong with a run:
 * - `crashBefore`: the process dies before the handler is called.
 * - `crashAfter`: it dies after the handler has returned, and before the report.
 * - `timeUp`: the run's time passes while the handler works; `run.signal` aborts, and what the handler returns is too late.
 * - `draining`: the process is told to stop; the run is cut short and given back, which counts as no failure.
 * - `stopped`: the job is turned round; what the handler returns is reported, and the turn ends. */
export type StepFault = "crashBefore" | "crashAfter" | "timeUp" | "draining" | "stopped";

export interface TestStepOptions {
  /** The step's name; the action if nothing is said. */
  step?: string;
  /** What is asked of the agent. Not needed if the agent has one action. */
  action?: string;
  /** The input of the runs, as JSON has it; null if nothing is said. */
  input?: unknown;
  /** As in a definition: 5 attempts, backoff 1s, maxBackoff 1m if nothing is said. */
  retry?: RetryDefinition;
  /** The time that each run has, as in a definition: 5m if nothing is said. */
  completeWithin?: string;
  /** How long, in real time, a handler may take before the test fails; 10_000 ms if nothing is said. */
  patienceMs?: number;
}

export interface TurnOptions {
  /** What befalls the first run, the second, and so on. null, or nothing: the run goes as it goes. */
  faults?: (StepFault | null)[];
  /** How many runs at most; those of `retry` if nothing is said. Less: as if nobody had asked again yet. */
  attempts?: number;
  /** In place of the step's input; of an undo, as `undo.with` in a definition. */
  input?: unknown;
}

/** One run, and how it ended. */
export interface TestedRun {
  number: number;
  direction: Direction;
  key: string;
  /** Of a run whose report never came: "expired". */
  outcome: Outcome;
  output?: unknown;
  error?: RunError;
  /** The fault that befell it. */
  fault?: StepFault;
  /** When it began, in virtual milliseconds since the step's first run. */
  startedAt: number;
  /** All that `run.progress` was given. */
  progress: unknown[];
}

/** All runs of one call of `do` or `undo`. */
export interface Turn {
  /** How the last run ended. "done" is the only one that brings the step where it should be. */
  outcome: Outcome;
  output?: unknown;
  error?: RunError;
  /** Where the step is now. */
  current: State;
  runs: TestedRun[];
}

const beatMs = 10_000; // until a run expires whose process has died
const maxAttempts = 1_000_000;

/** One step of a job that exists in the test alone. */
export class TestStep {
  readonly agent: Agent;
  readonly name: string;
  readonly action: string;
  /** The job's id, in keys. */
  readonly job = `job_${randomUUID().replaceAll("-", "")}`;
  /** All runs so far. */
  readonly runs: TestedRun[] = [];
  readonly #input: unknown;
  readonly #retry: Required<RetryDefinition>;
  readonly #timeMs: number;
  readonly #patienceMs: number;
  readonly #clock = new VirtualClock();
  #current: State = "undone";
  #turn = 0;
  #direction: Direction | undefined;
  #number = 0;
  #doKey = "";
  #doInput: unknown;
  #output: unknown = null; // of the do run, once it was reported

  constructor(agent: Agent, options: TestStepOptions = {}) {
    const actions = agent.actions;
    if (options.action === undefined && actions.length !== 1) {
      throw new TypeError(`agent ${agent.name} has ${actions.length} actions: say which one is tested, { action: … }`);
    }
    this.agent = agent;
    this.action = options.action ?? actions[0]!;
    this.name = options.step ?? this.action;
    this.#input = options.input ?? null;
    const backoff = options.retry?.backoff ?? "1s";
    this.#retry = { attempts: 5, backoff, maxBackoff: "1m", notOn: [], ...options.retry };
    durationMs(backoff, "retry.backoff");
    durationMs(this.#retry.maxBackoff, "retry.maxBackoff");
    whole(this.#retry.attempts, "retry.attempts");
    this.#timeMs = durationMs(options.completeWithin ?? "5m", "completeWithin");
    this.#patienceMs = options.patienceMs ?? 10_000;
  }

  /** Where the step is: unsure if a run was dispatched, and its outcome is not known. */
  get current(): State {
    return this.#current;
  }

  /** How much virtual time has passed. */
  get elapsedMs(): number {
    return this.#clock.elapsed;
  }

  /** Dispatches do runs until one is done, one is rejected, or the retries are used up. After an undo it is a redo, with
   * a new key. */
  async do(options: TurnOptions = {}): Promise<Turn> {
    if (this.#current === "done") throw new Error(`${this.name} is done already: undo it first`);
    if (this.#direction !== "do") {
      this.#begin("do");
      this.#doKey = this.#key;
      this.#output = null;
    }
    this.#doInput = "input" in options ? options.input : this.#input;
    return await this.#play("do", this.#doInput, options);
  }

  /** Dispatches undo runs until one is done, one is rejected, or the retries are used up. The handler gets the output of the do
   * run, or null if no report of it came. */
  async undo(options: TurnOptions = {}): Promise<Turn> {
    if (this.#doKey === "") {
      throw new Error(`no run of ${this.name} was dispatched, so Perdure would not undo it: call do() first. ` +
        'For an undo of a do that never happened: do({ attempts: 1, faults: ["crashBefore"] })');
    }
    if (this.#current === "undone") throw new Error(`${this.name} is undone already`);
    if (this.#direction !== "undo") this.#begin("undo");
    return await this.#play("undo", "input" in options ? options.input : this.#doInput, options);
  }

  get #key(): string {
    return `${this.job}/${this.name}/${this.#turn}`;
  }

  #begin(direction: Direction): void {
    this.#turn++;
    this.#direction = direction;
  }

  async #play(direction: Direction, input: unknown, options: TurnOptions): Promise<Turn> {
    const faults = [...options.faults ?? []];
    const attempts = whole(options.attempts ?? this.#retry.attempts, "attempts");
    const turn: TestedRun[] = [];
    for (let failures = 0; ;) {
      const fault = faults.shift() ?? undefined;
      const run = await this.#dispatch(direction, input, fault);
      turn.push(run);
      this.runs.push(run);
      const again = run.outcome === "returned" || (run.outcome !== "done" && run.outcome !== "rejected" && fault !== "stopped" && ++failures < attempts
          && !(run.error?.code && this.#retry.notOn.includes(run.error.code)));
      if (!again) {
        if (faults.some((f) => f)) throw new Error(`the turn of ${this.name} ended after ${turn.length} runs, and ${faults.join(", ")} befell none`);
        const { outcome, output, error } = run;
        return { outcome, ...(output === undefined ? {} : { output }), ...(error ? { error } : {}), current: this.#current, runs: turn };
      }
      if (run.outcome !== "returned") await this.#clock.sleep(this.#pause(failures, run.error));
    }
  }

  /** The longest pause that Perdure would draw. */
  #pause(failures: number, error: RunError | undefined): number {
    const base = durationMs(this.#retry.backoff, "retry.backoff");
    const most = Math.max(base, durationMs(this.#retry.maxBackoff, "retry.maxBackoff"));
    const asked = error?.retryAfter ? durationMs(error.retryAfter, "retryAfter") : 0;
    return Math.max(asked, Math.min(base * 2 ** Math.min(failures - 1, 60), most));
  }

  async #dispatch(direction: Direction, input: unknown, fault: StepFault | undefined): Promise<TestedRun> {
    const before = this.#current;
    const clock = this.#clock;
    const until = add(clock.now(), this.#timeMs);
    const completeBy = new Date(until.wall).toISOString();
    const raw: RawRun = {
      job: this.job, step: this.name, action: this.action, run: ++this.#number, direction, key: this.#key, priority: 0,
      input: asJSON(input), lockedUntil: completeBy, completeBy, remainingMs: this.#timeMs,
      ...(direction === "undo" ? { output: asJSON(this.#output), doKey: this.#doKey } : {}),
    };
    const tested: TestedRun = {
      number: raw.run, direction, key: raw.key, outcome: "expired", ...(fault ? { fault } : {}), startedAt: clock.elapsed, progress: [],
    };
    const run = new Run(this.agent.name, raw, () => until, (progress) => tested.progress.push(parse(progress)), clock);
    this.#current = "unsure";
    if (fault === "crashBefore") {
      await clock.sleep(Math.min(beatMs, this.#timeMs));
      return tested;
    }
    const outcome = await this.#execute(run, fault);
    const expired = fault === "crashAfter" || run.reason === "timeUp";
    if (fault === "crashAfter" && run.reason !== "timeUp") await clock.sleep(Math.min(beatMs, Math.max(0, until.mono - clock.elapsed)));
    if (expired) return tested;
    const report = parse(reportOf(run, outcome)) as Report;
    tested.outcome = report.outcome;
    if (report.error) tested.error = report.error;
    if (report.outcome === "done") {
      this.#current = direction === "do" ? "done" : "undone";
      if (direction === "do") tested.output = this.#output = report.output ?? null;
    } else if (report.effect === "none" || (report.outcome === "returned" && report.effect !== "unknown")) {
      this.#current = before;
    }
    return tested;
  }

  /** Calls the handler, and lets its fault befall it once it waits for something. */
  async #execute(run: Run, fault: StepFault | undefined): Promise<HandlerOutcome> {
    const clock = this.#clock;
    let ended = false;
    const cancelAlarm = clock.alarm(this.#timeMs, () => { if (!ended) run.cancel("timeUp"); });
    let timer: NodeJS.Timeout | undefined;
    const hung = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`run ${run.number} of ${this.name} (${run.direction}) did not end within ${this.#patienceMs} ms of real time. ` +
        (run.signal.aborted ? "Its signal has aborted: pass run.signal on to what the handler waits for"
          : "Virtual time passes in run.sleep alone; is something waited for that a test does not have?"))), this.#patienceMs);
    });
    if (fault && fault !== "crashAfter") {
      setImmediate(() => { // before what run.sleep does, and once the handler waits for something
        if (ended) return;
        if (fault === "timeUp") clock.skipToAlarm();
        else run.cancel(fault as CancelReason);
      });
    }
    const work = (async (): Promise<HandlerOutcome> => {
      try {
        return { output: await this.agent.execute(run) };
      } catch (error) {
        return { error };
      }
    })();
    try {
      const outcome = await Promise.race([work, hung]);
      if (fault === "timeUp" && !run.signal.aborted) { // it was quick: its report is what comes too late
        await clock.sleep(run.remainingMs());
        run.cancel("timeUp");
      }
      return outcome;
    } finally {
      ended = true;
      cancelAlarm();
      clearTimeout(timer);
    }
  }
}

/** A step of an agent, in memory and in virtual time. */
export function testStep(agent: Agent, options: TestStepOptions = {}): TestStep {
  return new TestStep(agent, options);
}

/** What a handler gets has been JSON before. */
function asJSON(value: unknown): unknown {
  try {
    return parse(stringify(value));
  } catch (cause) {
    throw new TypeError(`the input is no JSON: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

function whole(n: number, what: string): number {
  if (!Number.isInteger(n) || n < 1 || n > maxAttempts) throw new RangeError(`${what}: ${n} is not a whole number from 1 to ${maxAttempts}`);
  return n;
}
