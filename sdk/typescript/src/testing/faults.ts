// Faults between an agent and a real server: what one of them sends does not reach the other, or comes late, or twice.

import { setTimeout as pause } from "node:timers/promises";

import { parse, stringify } from "../json.ts";
import { type Ask, Transport } from "../transport.ts";
import type { BeatsBody, ClaimAnswer, Direction, RawRun, RefusalReason, Report, ReportsAnswer, ReportsBody } from "../types.ts";

/** What befalls a run:
 * - `crashBefore`: the process dies before the handler is called.
 * - `crashAfter`: it dies after the handler has returned, and before the report.
 * - `late`: the report comes when the run's time is over, and is refused.
 * - `twice`: the report comes twice. */
export type Fault = "crashBefore" | "crashAfter" | "late" | "twice";

export interface FaultOptions {
  /** Which direction; do if nothing is said. */
  direction?: Direction;
  /** Which runs of that direction, from 1; the first if nothing is said. */
  runs?: number[];
}

/** A report that was not accepted. */
export interface Refusal {
  step: string;
  run: number;
  reason: RefusalReason | undefined;
}

interface Injection {
  step: string;
  fault: Fault;
  direction: Direction;
  runs: Set<number>; // those that it has yet to befall
}

const lateMs = 10; // how long after its time a late report comes

/** The faults of a test, for all of its agents. */
export class Faults {
  readonly refused: Refusal[] = [];
  readonly #injections: Injection[] = [];
  readonly #seen = new Map<string, number>(); // how many runs of a job's step there were, by direction

  inject(step: string, fault: Fault, { direction = "do", runs = [1] }: FaultOptions): void {
    this.#injections.push({ step, fault, direction, runs: new Set(runs) });
  }

  /** Those that befell nothing. */
  get unmet(): string[] {
    return this.#injections.flatMap(({ step, fault, direction, runs }) => [...runs].map((n) => `${fault} of ${direction} run ${n} of ${step}`));
  }

  /** The fault of a run that has just arrived. */
  of(run: RawRun): Fault | undefined {
    const name = `${run.job} ${run.step} ${run.direction}`;
    const n = (this.#seen.get(name) ?? 0) + 1;
    this.#seen.set(name, n);
    for (const { step, fault, direction, runs } of this.#injections) {
      if (step === run.step && direction === run.direction && runs.delete(n)) return fault;
    }
    return undefined;
  }
}

/** A transport of agents that faults befall. */
export class FaultyTransport extends Transport {
  readonly #faults: Faults;
  readonly #befallen = new Map<string, { fault: Fault; lockedUntil: number }>();
  readonly #known = new Set<string>();

  constructor(url: string, faults: Faults) {
    super(url, {});
    this.#faults = faults;
  }

  override async ask(method: string, path: string, ask: Ask = {}): Promise<{ status: number; value: unknown }> {
    if (path === "/v1/reports") return await this.#report(method, path, ask);
    if (path === "/v1/heartbeats") return await this.#beat(method, path, ask);
    const answer = await super.ask(method, path, ask);
    return path.endsWith("/claim") ? { ...answer, value: this.#claimed(answer.value as ClaimAnswer) } : answer;
  }

  #claimed(answer: ClaimAnswer): ClaimAnswer {
    return { runs: answer.runs.filter((run) => {
      const handle = handleOf(run);
      if (!this.#known.has(handle)) { // a repeated claim brings the same runs
        this.#known.add(handle);
        const fault = this.#faults.of(run);
        if (fault) this.#befallen.set(handle, { fault, lockedUntil: Date.now() + run.remainingMs });
      }
      return this.#befallen.get(handle)?.fault !== "crashBefore";
    }) };
  }

  /** A dead process sends no heartbeats. */
  async #beat(method: string, path: string, ask: Ask): Promise<{ status: number; value: unknown }> {
    const body = parse(ask.body!) as BeatsBody;
    const runs = body.runs.filter((run) => !this.#isDead(handleOf(run)));
    if (runs.length === 0) return { status: 200, value: { runs: [] } };
    return await super.ask(method, path, { ...ask, body: stringify({ ...body, runs }) });
  }

  #isDead(handle: string): boolean {
    const fault = this.#befallen.get(handle)?.fault;
    return fault === "crashBefore" || fault === "crashAfter" || fault === "late";
  }

  async #report(method: string, path: string, ask: Ask): Promise<{ status: number; value: unknown }> {
    const body = parse(ask.body!) as ReportsBody;
    const send = async (reports: Report[]): Promise<ReportsAnswer> => {
      const answer = (await super.ask(method, path, { ...ask, body: stringify({ ...body, reports }) })).value as ReportsAnswer;
      for (const [i, result] of answer.results.entries()) {
        const { step, run } = reports[i]!;
        if (!result.accepted) this.#faults.refused.push({ step, run, reason: result.reason });
      }
      return answer;
    };
    const alive = body.reports.filter((report) => !this.#isDead(handleOf(report)));
    const twice = alive.filter((report) => this.#befallen.get(handleOf(report))?.fault === "twice");
    const results = alive.length > 0 ? (await send(alive)).results : [];
    if (twice.length > 0) await send(twice);
    for (const report of body.reports) {
      const { fault, lockedUntil } = this.#befallen.get(handleOf(report)) ?? {};
      if (fault === "late") void pause(lockedUntil! - Date.now() + lateMs).then(() => send([report])).catch(() => {}); // the server may be gone
    }
    // The host has done its part for those that did not arrive.
    const bySelf = new Map(alive.map((report, i) => [report, results[i]!]));
    return { status: 200, value: { results: body.reports.map((report) => bySelf.get(report) ?? { accepted: true }) } satisfies ReportsAnswer };
  }
}

const handleOf = (run: { job: string; step: string; run: number }): string => `${run.job} ${run.step} ${run.run}`;
