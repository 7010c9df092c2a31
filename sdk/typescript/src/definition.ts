// The definition of a job, as in its JSON Schema (perdure schema).
//
// Generated; do not edit. After a change of the server: go test ./sdk -run TypeScriptTypes -refresh

import type { StateNames } from "./types.ts";

/** What is asked of Perdure: a job of steps, done all or undone all. */
export interface JobDefinition {
  /** The steps by name. */
  steps: Record<string, StepDefinition>;
  /** Limits, metrics and lists go by it. */
  type: string;
  /** Where an editor finds this schema. It means nothing to the job. */
  "$schema"?: string;
  /** The job's own ultimatum. */
  completeWithin?: string;
  /** chain: each step comes after the one before it. */
  flow?: "chain";
  /** What the expressions see as `input`: any JSON up to 1 MiB. */
  input?: unknown;
  /** The same key is the same job: 1 to 200 printable characters, not starting with job_ or @, no /. May be computed from the input. */
  key?: string;
  /** Words to find jobs by. */
  labels?: Record<string, string>;
  /** What follows when a step's retries are used up; a step may have its own. */
  onFailure?: Ladder;
  /** 0 to 9, 9 first. May be computed from the input. */
  priority?: number | string;
  /** Names of your own for undone and done. */
  states?: StateNames;
}

/** Read from the top to the bottom; one that does not end, ends in park. */
export type Ladder = Rung | Rung[];

export interface LimitDefinition {
  /** The limit: perdure limits set NAME. A limit that is not set bounds nothing. */
  name: string;
  /** How many permits a run holds. */
  amount?: number;
  /** What the limit's --per-key bounds for itself. Computed when the step becomes ready: text, a number, true or false. */
  key?: string;
}

export interface RetryDefinition {
  /** Runs in all. */
  attempts?: number;
  /** The wait after the first failure; it doubles from there, with full jitter. */
  backoff?: string;
  /** The longest wait. */
  maxBackoff?: string;
  /** Error codes that are not worth another attempt. */
  notOn?: string[];
}

export type Rung = "park" | "undo" | "skip" | { times?: number; wait: string } | { restart: number } | { alert: string };

export type HttpStatuses = (number | string)[] | string;

export interface StepDefinition {
  /** Who does it: http, shell, sleep, approval, or an agent of your own. */
  agent: string;
  /** What is asked of the agent; the step's name if nothing is said. */
  action?: string;
  /** The steps that must be settled first. */
  after?: string[];
  /** The ultimatum of each run: the worst good case plus some padding. */
  completeWithin?: string;
  /** Limits of which each run, and each undo run, holds a permit until it ends. */
  limits?: LimitDefinition[];
  /** What follows when the retries are used up; the job's if nothing is said. */
  onFailure?: Ladder;
  /** How often and how soon a failed run is tried again. */
  retry?: RetryDefinition;
  /** How it is undone; without it there is nothing to undo. */
  undo?: UndoDefinition;
  /** An expression; if it is false the step is skipped, and its output is null. */
  when?: string;
  /** The agent's input. Strings may hold ${…}; one that stands alone keeps its type, $${ is a literal ${. */
  with?: unknown;
}

export interface UndoDefinition {
  /** What is asked of the agent; the step's action if nothing is said. */
  action?: string;
  /** Who undoes it; the step's agent if nothing is said. */
  agent?: string;
  /** The ultimatum of each undo run; the step's if nothing is said. */
  completeWithin?: string;
  /** In place of the step's. */
  retry?: RetryDefinition;
  /** The input of the undo, in place of the do run's. Expressions see `output`, `key` and `doKey`, too. */
  with?: unknown;
}

export type HttpValues = Record<string, unknown> | string;

export type ApprovalInput = { message?: string; role?: string } | string;

export type HttpInput = { body?: unknown; expect?: { done?: HttpStatuses; failed?: HttpStatuses; rejected?: HttpStatuses }; followRedirects?: number | string; headers?: HttpValues; method?: string; query?: HttpValues; url: string } | string;

export type ShellInput = { command: unknown[] | string; dir?: string; env?: HttpValues; rejectedCodes?: (number | string)[] | string; stdin?: unknown } | string;

export type SleepInput = { for?: string; until?: string } | string;
