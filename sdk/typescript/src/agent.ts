// What a user writes: agents and their handlers; and what a handler gets: a Run.

import { type Clock, type Instant, add, left, now, realClock } from "./clock.ts";
import { Cancelled, type CancelReason, Failed, Rejected } from "./errors.ts";
import { bytes, stringify } from "./json.ts";
import type { Redactor } from "./secret.ts";
import type { Direction, RawRun, Report } from "./types.ts";

export const defaultSlots = 16;
const maxSlots = 1000;
const maxName = 128;
const maxActionsNamed = 10;
const maxProgress = 4 << 10;
const maxOutput = 1 << 20;
const maxMessage = 4 << 10;
const maxCode = 128;
const maxRetryAfterMs = 24 * 3_600_000;
const aName = /^[A-Za-z0-9][A-Za-z0-9._-]*$/; // as definitions have it

/** One numbered attempt of a step, as its handler gets it. */
export class Run {
  readonly agent: string;
  readonly job: string;
  readonly step: string;
  readonly action: string;
  readonly direction: Direction;
  /** The same in every run of a turn: pass it on, for the other side to recognise a repetition. */
  readonly key: string;
  /** In an undo, the key that the do runs had; else empty. */
  readonly doKey: string;
  /** Grows with every run of the step: pass it on, for the other side to refuse older ones. */
  readonly number: number;
  readonly input: unknown;
  /** In an undo, what the do run left; null if it never answered. */
  readonly output: unknown;
  readonly priority: number;
  readonly completeBy: Date;
  readonly traceparent: string;
  readonly #ended = new AbortController();
  readonly #until: () => Instant;
  readonly #send: (progress: string) => void;
  readonly #clock: Clock;

  /** For an agent host. In a test of your own: `testStep` of perdure/testing, or `testRun({ input: … })`. */
  constructor(agent: string, raw: RawRun, until: () => Instant, send: (progress: string) => void, clock: Clock = realClock) {
    this.agent = agent;
    this.job = raw.job;
    this.step = raw.step;
    this.action = raw.action;
    this.direction = raw.direction;
    this.key = raw.key;
    this.doKey = raw.doKey ?? "";
    this.number = raw.run;
    this.input = raw.input;
    this.output = raw.output ?? null;
    this.priority = raw.priority;
    this.completeBy = new Date(raw.completeBy);
    this.traceparent = raw.traceparent ?? "";
    this.#until = until;
    this.#send = send;
    this.#clock = clock;
  }

  /** Aborts when the run is over: its time is up, it no longer belongs to this process or is no longer wanted, or the process drains.
   * Its reason is a Cancelled. Give it to fetch. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Why the run is over; undefined while it is not. */
  get reason(): CancelReason | undefined {
    const reason: unknown = this.signal.reason;
    return reason instanceof Cancelled ? reason.reason : undefined;
  }

  /** Milliseconds until the ultimatum, or 0 once the run is over. */
  remainingMs(): number {
    return this.signal.aborted ? 0 : Math.floor(left(this.#until(), this.#clock.now()));
  }

  /** Throws Cancelled once the run is over. Call it between the parts of long work. */
  check(): void {
    this.signal.throwIfAborted();
  }

  /** Sleeps, and throws Cancelled as soon as the run is over. */
  async sleep(ms: number): Promise<void> {
    await this.#clock.sleep(ms, this.signal);
    this.check();
  }

  /** Sends value, as JSON of at most 4 KiB, with the next heartbeat. It is shown with the step. */
  progress(value: unknown): void {
    const text = stringify(value);
    if (bytes(text) > maxProgress) throw new RangeError(`progress of ${bytes(text)} bytes is over ${maxProgress}`);
    this.#send(text);
  }

  /** What the run is, as the HTTP headers that the agent `http` sends: key, number, remaining time … */
  headers(): Record<string, string> {
    return {
      "Idempotency-Key": this.key,
      "Perdure-Job": this.job,
      "Perdure-Step": this.step,
      "Perdure-Run": String(this.number),
      "Perdure-Direction": this.direction,
      "Perdure-Remaining-Ms": String(this.remainingMs()),
      ...(this.doKey ? { "Perdure-Do-Key": this.doKey } : {}),
      ...(this.traceparent ? { traceparent: this.traceparent } : {}),
    };
  }

  /** Ends the run for its handler; what comes of it is the agent host's to say. For tests. */
  cancel(reason: CancelReason): void {
    this.#ended.abort(new Cancelled(reason));
  }
}

/** A run to test a handler with, with a minute of time. */
export function testRun(raw: Partial<RawRun> = {}): Run {
  const until = add(now(), 60_000);
  const completeBy = new Date(until.wall).toISOString();
  return new Run("test", {
    job: "job_" + "0".repeat(32), step: "test", action: "test", run: 1, direction: "do", input: null, key: "test-key",
    lockedUntil: completeBy, completeBy, remainingMs: 60_000, priority: 0, ...raw,
  }, () => until, () => {});
}

/** The two directions of an action. An undo that is asked for and is not there is rejected: give one to each action
 * whose steps have `undo` in their definition, if only one that does nothing. */
export interface Op<In = unknown, Out = unknown> {
  /** Answers with the output, a value of JSON; or throws. */
  do(input: In, run: Run): Out | Promise<Out>;
  /** output is null if the do run never answered, and an undo must cope with a do that never happened: go by
   * `run.doKey`. */
  undo?(input: In, output: Out | null, run: Run): void | Promise<void>;
}

/** Wraps one service or resource, and executes the runs that ask for it. */
export class Agent {
  readonly name: string;
  /** How many runs at once. */
  readonly slots: number;
  readonly #actions = new Map<string, Op>();

  constructor(name: string, options: { slots?: number } = {}) {
    const slots = options.slots ?? defaultSlots;
    if (name.length < 1 || name.length > maxName) throw new RangeError(`an agent's name has 1 to ${maxName} characters`);
    if (!aName.test(name)) {
      throw new RangeError(`${JSON.stringify(name)} is no name: letters, digits, \`.\`, \`_\` and \`-\`, starting with a letter or digit`);
    }
    if (!Number.isInteger(slots) || slots < 1 || slots > maxSlots) throw new RangeError(`slots are 1 to ${maxSlots}`);
    this.name = name;
    this.slots = slots;
  }

  /** Gives the agent an action. The types are yours to promise: nothing checks that an input has them. */
  handle<In, Out>(action: string, op: Op<In, Out>): this {
    if (typeof action !== "string" || !action) throw new TypeError("an action has a name");
    if (typeof op?.do !== "function" || (op.undo !== undefined && typeof op.undo !== "function")) {
      throw new TypeError(`the handler of ${action} is an object with the function do, and undo if there is something to undo`);
    }
    // A function's length does not count optional and rest parameters, so only too many parameters can be detected.
    for (const [way, f, given] of [["do", op.do, "(input, run)"], ["undo", op.undo, "(input, output, run)"]] as const) {
      if (f && f.length > given.split(",").length) {
        throw new TypeError(`the handler of ${action} takes ${f.length} arguments, and ${way} is called with ${given}`);
      }
    }
    if (this.#actions.has(action)) throw new TypeError(`agent ${this.name} has two handlers for ${action}`);
    this.#actions.set(action, op as Op);
    return this;
  }

  /** The actions that it has a handler for. */
  get actions(): string[] {
    return [...this.#actions.keys()];
  }

  /** Calls the handler of the run's action and direction. An action without one is rejected. */
  async execute(run: Run): Promise<unknown> {
    const op = this.#actions.get(run.action);
    if (!op) {
      throw new Rejected(`agent ${this.name} has no action ${JSON.stringify(run.action)}; it has ${this.#knows()}`,
        { code: "noAction", noEffect: true });
    }
    if (run.direction === "do") return await op.do(run.input, run);
    if (!op.undo) { // nobody but a person knows whether there is something to undo
      throw new Rejected(`agent ${this.name} has no undo for ${JSON.stringify(run.action)}, and the step's definition asks for one: ` +
        "give the handler an undo (one that does nothing, if nothing is to be undone) and resume the job; " +
        "or settle the step by hand, and leave undo out of the definition", { code: "noUndo", noEffect: true });
    }
    await op.undo(run.input, run.output, run);
    return undefined;
  }

  #knows(): string {
    const names = [...this.#actions.keys()].sort();
    const more = names.length - maxActionsNamed;
    if (more > 0) names.splice(maxActionsNamed, more, `${more} more`);
    return names.join(", ") || "none";
  }
}

/** How a run ended: what a handler returned, or what it threw. */
export type Outcome = { output: unknown } | { error: unknown };

/** The report that a handler's answer makes, as JSON. An output that is no JSON, or over 1 MiB, makes a failed one. */
export function reportOf(run: Run, outcome: Outcome, redactor?: Redactor): string {
  const shown = (s: string): string => redactor?.text(s) ?? s; // before a text is cut
  const handle = { job: run.job, step: run.step, run: run.number };
  let error: unknown;
  if ("output" in outcome) {
    try {
      const returned = stringify(outcome.output);
      const output = redactor?.json(returned) ?? returned;
      const size = bytes(output);
      const head = stringify({ ...handle, outcome: "done" } satisfies Report);
      if (size <= maxOutput) return output === "null" ? head : `${head.slice(0, -1)},"output":${output}}`;
      error = new Failed(`output of ${size} bytes is over ${maxOutput}`, { code: "outputTooLarge" });
    } catch (e) {
      error = new Failed(`output: ${messageOf(e)}`, { code: "outputInvalid" });
    }
  } else {
    error = outcome.error;
  }
  const failure = error instanceof Failed ? error : undefined;
  if (run.reason === "draining") {
    // Not the run's fault: it counts no failure. What it has changed is not known, unless the handler says so.
    return stringify({ ...handle, outcome: "returned", ...(failure?.noEffect ? {} : { effect: "unknown" }),
      error: { message: "cut short by a drain of its host" } } satisfies Report);
  }
  const code = codeOf(error) || (run.reason === "stopped" ? "stopped" : "");
  return stringify({
    ...handle,
    outcome: error instanceof Rejected ? "rejected" : "failed",
    error: {
      message: clip(text(shown(messageOf(error))), maxMessage),
      ...(code ? { code: clip(text(shown(code)), maxCode) } : {}),
      ...(failure && failure.retryAfterMs > 0
        ? { retryAfter: `${Math.round(Math.min(failure.retryAfterMs, maxRetryAfterMs))}ms` } : {}),
    },
    ...(failure?.noEffect ? { effect: "none" } : {}),
  } satisfies Report);
}

/** What an error says, whatever was thrown. */
export function messageOf(e: unknown): string {
  try {
    return e instanceof Error ? e.message || e.name : String(e);
  } catch {
    return "an error that cannot be shown";
  }
}

/** A code of one's own, a system error's (ECONNREFUSED), or what kind of error it is. */
function codeOf(e: unknown): string {
  if (e instanceof Failed) return e.code;
  if (!(e instanceof Error) || e instanceof Cancelled) return "";
  const { code, name } = e as { code?: unknown; name?: unknown };
  return typeof code === "string" ? code : typeof name === "string" && name !== "Error" ? name : "";
}

/** s as every store can keep it: valid UTF-8 without NUL. */
function text(s: string): string {
  return Buffer.from(s).toString().replaceAll("\0", "\ufffd");
}

/** At most n bytes of s, cut at a character's edge. */
function clip(s: string, n: number): string {
  const b = Buffer.from(s);
  if (b.length <= n) return s;
  while (n > 0 && (b[n]! & 0xc0) === 0x80) n--;
  return b.toString("utf8", 0, n);
}
