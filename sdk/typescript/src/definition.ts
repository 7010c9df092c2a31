// The definition of a job, as in its JSON Schema (perdure schema).
//
// Generated; do not edit. After a change of the server: go test ./sdk -run TypeScriptTypes -refresh

import type { StateNames } from "./types.ts";

/** A job of Perdure: steps that end all done or all undone. */
export interface JobDefinition {
  /** The steps by name. */
  steps: Record<string, StepDefinition>;
  /** The type of the job, by which metrics and lists group jobs. */
  type: string;
  /** The address of this schema, for editors. It is no part of the job. */
  "$schema"?: string;
  /** The time within which the job must end. */
  completeWithin?: string;
  /** chain: each step comes after the one above it. */
  flow?: "chain";
  /** The value of `input` in expressions: any JSON up to 1 MiB. */
  input?: unknown;
  /** A JSON Schema (2020-12) of the input. A submission whose input does not fit is refused. */
  inputSchema?: unknown;
  /** Two submissions with the same key are one job: 1 to 200 printable characters, not starting with job_ or @, no /. May be computed from the input. */
  key?: string;
  /** Labels by which jobs are found. */
  labels?: Record<string, string>;
  /** Limits of which the job holds permits from its first run until it is settled or parked. Keys may be computed from the input. */
  limits?: LimitDefinition[];
  /** Receivers of notifications about the job. */
  notify?: notify[];
  /** The escalation ladder for steps whose retries are used up. A step may have its own. */
  onFailure?: Ladder;
  /** The output of the job, computed when its last step settles. Strings may have ${…}, which see the outputs of all steps. */
  output?: unknown;
  /** A JSON Schema (2020-12) of the output. An output that does not fit is left out, with an alert. */
  outputSchema?: unknown;
  /** 0 to 9, 9 first. May be computed from the input. */
  priority?: number | string;
  /** When the job starts, as in RFC 3339: it waits until then. May be computed from the input. */
  startAt?: string;
  /** How long after its submission the job starts. Not together with startAt. */
  startIn?: string;
  /** The time within which a run must be dispatched, counted from when the job may start. Otherwise the job fails as onFailure says, and is undone without one. */
  startWithin?: string;
  /** Names that are shown in place of undone and done. */
  states?: StateNames;
  /** Makes further submissions with the same key the first job: within a time since its submission, or while it is unsettled. */
  unique?: UniqueDefinition;
}

export interface ChildJob {
  /** The name of a stored definition, with or without a version, or a definition. A name without a version means the version that is current when the step begins. */
  definition: string | Record<string, unknown>;
  /** The input of the job. Strings may have ${…}. */
  input?: unknown;
  /** The key of the job. Strings may have ${…}. It must be new: a child whose key is that of another job fails the step. */
  key?: string;
  /** Labels of the job. Default: those of the parent. */
  labels?: Record<string, string>;
  /** Priority of the job. Default: that of the parent. */
  priority?: number;
  /** With wait: false. true: the undo of the step undoes the children. Otherwise they stay as they are. */
  undoChild?: boolean;
  /** false: the step is done when its children are submitted, and does not wait for them. */
  wait?: boolean;
}

export type hostLabels = Record<string, "*" | string>;

/** The rungs apply from the first to the last. A ladder that does not end otherwise ends with park. */
export type Ladder = Rung | Rung[];

export interface LimitDefinition {
  /** The name of the limit, as set with: perdure limits set NAME. A limit that is not set bounds nothing. */
  name: string;
  /** How many permits a run or job holds. */
  amount?: number;
  /** The key within the limit, for which --per-key is the bound. Text, a number, true or false. That of a step is computed when the step becomes ready, that of a job when it is submitted. */
  key?: string;
}

export interface notify {
  /** The changes that are reported. */
  on?: ("received" | "running" | "parked" | "done" | "undoing" | "undone" | "givenUp")[];
  /** The name of a receiver of the store (perdure webhooks). */
  receiver?: string;
  /** The name of a secret with which deliveries to webhook are signed: the nodes read PERDURE_SECRET_NAME. */
  secret?: string;
  /** The URL to which notifications are delivered. Either webhook or receiver is given. */
  webhook?: string;
}

export interface requires {
  /** CPUs, with at most three decimals. */
  cpu?: number;
  /** The grid to which the host belongs. */
  grid?: string;
  /** Labels that the host has. * stands for any value. */
  labels?: hostLabels;
  /** A size, or a number of bytes. */
  memory?: string | number;
  [name: string]: unknown;
}

export interface RetryDefinition {
  /** The number of runs, the first one included. */
  attempts?: number;
  /** The wait after the first failure. It doubles with each failure, with full jitter. */
  backoff?: string;
  /** The longest wait. */
  maxBackoff?: string;
  /** Error codes after which the run is not tried again. */
  notOn?: string[];
}

export type Rung = "park" | "undo" | "skip" | { times?: number; wait: string } | { restart: number } | { alert: string };

export type HttpStatuses = (number | string)[] | string;

export interface StepDefinition {
  /** The action of the agent. Default: the name of the step. */
  action?: string;
  /** The steps that must be settled first. */
  after?: string[];
  /** The agent that runs the step: http, shell, exec, sleep, approval, signal, or an agent of your own. */
  agent?: string;
  /** The name of the item in the expressions of a step with forEach. Beside it, index is its number, from 0. */
  as?: string;
  /** list: the output has the outputs of the children in the order of the items (items), up to 1 MiB. artifact: items is an artifact of JSON lines. Otherwise it has counts: total, done and failed. */
  collect?: "none" | "list" | "artifact";
  /** The time within which each run must end: the longest that a good run takes, and some more. */
  completeWithin?: string;
  /** The step has a child job for each item of a list (in), each line of an artifact of JSON lines (artifact), or each whole number from the first of range up to the one before the second. At most 1,000,000, and 100,000 if outputs are collected. */
  forEach?: { artifact?: Record<string, unknown> | string; in?: unknown[] | string; range?: (number | string)[] };
  /** How long the process that runs the step may be silent, if that is longer than what it promises. At least twice stopWithin. */
  heartbeat?: string;
  /** A JSON Schema (2020-12) of the input of do runs. If it does not fit, no run is dispatched, and the step fails with the code inputInvalid. */
  inputSchema?: unknown;
  /** The job that is the child of the step, or each of its children with forEach. In place of agent. */
  job?: ChildJob;
  /** Limits of which each run, and each undo run, holds a permit until it ends. */
  limits?: LimitDefinition[];
  /** How many children of forEach are unsettled at a time. */
  maxParallel?: number;
  /** The escalation ladder when the retries are used up. Default: that of the job. */
  onFailure?: Ladder;
  /** A JSON Schema (2020-12) of the output of do runs. If it does not fit, the run has failed with the code outputInvalid, and is not tried again. */
  outputSchema?: unknown;
  /** failed: a child that is parked counts as failed, and is undone. Default: it waits for its operator. */
  parkedIs?: "failed";
  /** pack: of the hosts that fit, the one with the least left over. spread: the one with the most. */
  place?: "pack" | "spread";
  /** Labels of hosts that go first. They exclude none. */
  prefers?: { labels: hostLabels };
  /** A do run whose progress does not change for so long is stopped, with the code stalled. */
  progressWithin?: string;
  /** What the step requires of the host that runs it. A run takes the amounts until it ends. */
  requires?: requires;
  /** How often and how soon a failed run is tried again. */
  retry?: RetryDefinition;
  /** The time between SIGTERM and SIGKILL for a program of exec, at most 5m and half of completeWithin. Default: that of the host, 10s, and at most a quarter of completeWithin. */
  stopWithin?: string;
  /** How many children of forEach may fail. Default: none. */
  tolerate?: Tolerance;
  /** How the step is undone. Without it there is nothing to undo. */
  undo?: UndoDefinition;
  /** reverse: the children are undone from the last to the first. With maxParallel: 1, one after the other. */
  undoOrder?: "reverse";
  /** An expression; if it is false the step is skipped, and its output is null. */
  when?: string;
  /** The input of the agent. Strings may have ${…}. A ${…} that is the whole string keeps the type of its value; $${ is a literal ${. A ${secret.NAME} is resolved where the agent runs. */
  with?: unknown;
}

export interface Tolerance {
  /** A number of children, or a share of all: 1%. */
  failed: number | string;
}

export interface UndoDefinition {
  /** The action of the agent. Default: the action of the step. */
  action?: string;
  /** The agent that undoes the step. Default: the agent of the step. */
  agent?: string;
  /** The time within which each undo run must end. Default: that of the step. */
  completeWithin?: string;
  /** The retries of undo runs. Default: those of the step. */
  retry?: RetryDefinition;
  /** Whether the undo runs on the host that has done the step. prefer: that host goes first. */
  sameHost?: "prefer" | "require" | "any";
  /** The input of the undo, in place of that of the do run. Its expressions may also refer to `output`, `key` and `doKey`. */
  with?: unknown;
}

export interface UniqueDefinition {
  /** The key, which counts for jobs of the same type. May be computed from the input: text, a number, true or false. */
  key: string;
  /** unsettled: the first job is the answer until it is settled. */
  while?: "unsettled";
  /** How long the first job is the answer, at most 30 days. Either within or while is given. */
  within?: string;
}

export type HttpValues = Record<string, unknown> | string;

export type ApprovalInput = { excludeSubmitter?: boolean | string; group?: string; message?: string; quorum?: number | string } | string;

export type ExecInput = { collect?: Record<string, string> | string; command: unknown[] | string; env?: HttpValues; exit?: { rejected?: (number | string)[] | string; returned?: (number | string)[] | string } | string; files?: Record<string, unknown> | string } | string;

export type HttpInput = { body?: unknown; expect?: { done?: HttpStatuses; failed?: HttpStatuses; rejected?: HttpStatuses }; followRedirects?: number | string; headers?: HttpValues; method?: string; query?: HttpValues; url: string } | string;

export type ShellInput = { command: unknown[] | string; dir?: string; env?: HttpValues; rejectedCodes?: (number | string)[] | string; stdin?: unknown } | string;

export type SignalInput = { key: string | number; name: string } | string;

export type SleepInput = { for?: string; until?: string } | string;
