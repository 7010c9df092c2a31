// An agent for tests of jobs, in place of the real one.

import { Agent, type Run } from "../agent.ts";
import { Rejected } from "../errors.ts";
import type { Direction } from "../types.ts";

interface Effect {
  step: string;
  output: unknown;
  did: number;
  undid: number;
  closed: boolean; // undone, whether or not it was ever done
}

/** An agent with a service behind it as one should be: it takes every action, recognises a repetition by its key, undoes by the
 * key of what it did, and refuses what it has undone before. It counts what it does. */
export class Fake extends Agent {
  readonly #behave = new Map<string, (run: Run) => unknown>(); // by step
  readonly #effects = new Map<string, Effect>(); // by the key of the do
  readonly #attempts = new Map<string, number>();

  /** Says how runs of a step go: returns their output, or throws, which comes before any effect. It is called for each run in
   * either direction, and replaces what was said before. */
  on(step: string, answer: (run: Run) => unknown): this {
    this.#behave.set(step, answer);
    return this;
  }

  /** Lets the step's first n do runs fail with an error. */
  fail(step: string, n: number, error: Error): this {
    return this.on(step, (run) => {
      if (run.direction === "do" && n-- > 0) throw error;
      return null;
    });
  }

  /** How often a step was asked for in that direction. */
  attempts(step: string, direction: Direction = "do"): number {
    return this.#attempts.get(`${direction} ${step}`) ?? 0;
  }

  /** How many effects of a step there ever were. */
  effects(step: string): number {
    return this.#count(step, (e) => e.did);
  }

  /** How many effects of a step are there: done, and not undone. */
  net(step: string): number {
    return this.#count(step, (e) => e.did - e.undid);
  }

  /** Throws unless the step has one effect, and had no other. */
  once(step: string): void {
    const undid = this.effects(step) - this.net(step);
    if (this.effects(step) !== 1 || undid !== 0) {
      throw new Error(`${this.name}: ${step} was done ${this.effects(step)} times and undone ${undid} times, want one effect`);
    }
  }

  /** Throws unless everything that the step did was undone. */
  gone(step: string): void {
    if (this.net(step) !== 0) {
      throw new Error(`${this.name}: ${step} was done ${this.effects(step)} times and undone ${this.effects(step) - this.net(step)} times`);
    }
  }

  #count(step: string, of: (effect: Effect) => number): number {
    let n = 0;
    for (const effect of this.#effects.values()) if (effect.step === step) n += of(effect);
    return n;
  }

  override get actions(): string[] {
    return ["*"];
  }

  override async execute(run: Run): Promise<unknown> {
    const attempt = `${run.direction} ${run.step}`;
    this.#attempts.set(attempt, (this.#attempts.get(attempt) ?? 0) + 1);
    const output = await this.#behave.get(run.step)?.(run) ?? null;
    const key = run.direction === "do" ? run.key : run.doKey;
    let effect = this.#effects.get(key);
    if (!effect) {
      effect = { step: run.step, output: null, did: 0, undid: 0, closed: false };
      this.#effects.set(key, effect);
    }
    if (run.direction === "undo") {
      if (effect.did > effect.undid) effect.undid++;
      effect.closed = true;
      return undefined;
    }
    if (effect.closed) throw new Rejected("it was undone before it came", { code: "undone", noEffect: true });
    if (effect.did === 0) Object.assign(effect, { did: 1, output });
    return effect.output;
  }
}
