// What every handler must hold: its effect happens once, and is gone after an undo, whatever fails.

import type { Agent } from "../agent.ts";
import { type TestStep, type TestStepOptions, type TurnOptions, testStep } from "./step.ts";

/** Counts the effects that are there: rows, charges, files. */
export type Effects = () => number | Promise<number>;

interface Act extends TurnOptions {
  way: "do" | "undo";
  /** Whether the turn is to bring the step where it should be. */
  unfinished?: boolean;
  /** How many effects there must be then, more than at the beginning. Nothing is said of one that was cut short. */
  effects?: number;
}

const done: Act = { way: "do", effects: 1 };
const undone: Act = { way: "undo", effects: 0 };

const scenarios: Record<string, Act[]> = {
  "a do and its undo": [done, undone],
  "a do that is repeated because the process died before its report": [{ ...done, faults: ["crashAfter"] }, undone],
  "a do after a run whose process died before the handler was called": [{ ...done, faults: ["crashBefore"] }, undone],
  "a do after a run whose time had passed": [{ ...done, faults: ["timeUp"] }, undone],
  "a do after a run that was cut short by a drain": [{ ...done, faults: ["draining"] }, undone],
  "an undo that is repeated because the process died before its report": [done, { ...undone, faults: ["crashAfter"] }],
  "an undo after one whose time had passed": [done, { ...undone, faults: ["timeUp"] }],
  "an undo of a do whose report never came": [{ way: "do", unfinished: true, attempts: 1, faults: ["crashAfter"] }, undone],
  "an undo of a do that was cut short": [{ way: "do", unfinished: true, attempts: 1, faults: ["timeUp"] }, undone],
  "an undo of a do that never happened": [{ way: "do", unfinished: true, attempts: 1, faults: ["crashBefore"] }, undone],
  "a do after an undo": [done, undone, done, undone],
};

/** What is left of a scenario for an action without an undo. */
function withoutUndo(acts: Act[]): Act[] {
  const about = acts.length > 2 || acts.some((act) => act.unfinished || (act.way === "undo" && act.faults));
  return about ? [] : acts.filter((act) => act.way === "do");
}

/**
 * Plays the faults that a handler meets in production, one after the other, each in a step with keys of its own, and counts
 * the effects, of which none is left in the end. Throws an Error with one line for each scenario that ended otherwise than it
 * must. `undo: false` is for an action without an undo: its effects are left.
 *
 *     await checkStep(payments, { input: { amount: 5 }, effects: () => bank.charges.size });
 */
export async function checkStep(agent: Agent, options: TestStepOptions & { effects: Effects; undo?: boolean }): Promise<void> {
  const failures: string[] = [];
  for (const [name, acts] of Object.entries(scenarios)) {
    const failure = await play(testStep(agent, options), options.undo === false ? withoutUndo(acts) : acts, options.effects);
    if (failure) failures.push(`${name}: ${failure}`);
  }
  if (failures.length > 0) throw new Error(`${agent.name} does not hold what a handler must hold:\n${failures.join("\n")}`);
}

async function play(step: TestStep, acts: Act[], effects: Effects): Promise<string | undefined> {
  const before = await effects();
  for (const act of acts) {
    const turn = await step[act.way](act);
    if (!act.unfinished && turn.outcome !== "done") {
      return `the ${act.way} ended ${turn.outcome}${turn.error ? `: ${turn.error.message}` : ""}`;
    }
    const there = await effects() - before;
    if (act.effects !== undefined && there !== act.effects) {
      return `${there} ${there === 1 ? "effect" : "effects"} after the ${act.way}, want ${act.effects} (key ${turn.runs.at(-1)!.key})`;
    }
  }
  return undefined;
}
