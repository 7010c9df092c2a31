// What a server answers.
//
// From the server's OpenAPI document; `go test ./sdk -run Types -refresh` writes it anew.
// Times are texts as RFC 3339 has them, in UTC.

export interface Alert {
  id: number;
  kind: string;
  message: string;
  raisedAt: string;
  closedAt?: string;
  closedBy?: string;
  job?: string;
  name?: string;
  step?: string;
}

export interface Mark {
  by: string;
  reason?: string;
}

export interface StateNames {
  done?: string;
  undone?: string;
}

export interface RunError {
  message: string;
  code?: string;
  retryAfter?: string;
}

export interface StepLimit {
  name: string;
  amount?: number;
  key?: string;
}

export interface Holder {
  job: string;
  amount?: number;
  key?: string;
  run?: number;
  step?: string;
}

export interface Reason {
  reason: "afterSteps" | "noAgent" | "agentBusy" | "limit" | "backoff" | "notYet" | "held" | "approval" | "running" | "expired" | "parked" | "deadline";
  text: string;
  agent?: string;
  code?: string;
  count?: number;
  holders?: Holder[];
  key?: string;
  limit?: string;
  max?: number;
  since?: string;
  steps?: string[];
  until?: string;
  used?: number;
}

export interface Step {
  action: string;
  agent: string;
  current: "undone" | "done" | "unsure";
  desired: "undone" | "done" | "unsure";
  direction: "do" | "undo";
  failures: number;
  key: string;
  phase: "settled" | "waiting" | "ready" | "running" | "parked";
  run: number;
  turn: number;
  was: "undone" | "done" | "unsure";
  after?: string[];
  availableAt?: string;
  completeBy?: string;
  endedAt?: string;
  givenUp?: boolean;
  input?: unknown;
  inputBytes?: number;
  lastError?: RunError;
  limits?: StepLimit[];
  lockedBy?: string;
  lockedUntil?: string;
  outcome?: "done" | "failed" | "rejected" | "returned" | "expired";
  output?: unknown;
  outputBytes?: number;
  progress?: unknown;
  readyAt?: string;
  returns?: number;
  rung?: number;
  skipped?: boolean;
  startedAt?: string;
  waits?: number;
  why?: Reason;
}

export interface Job {
  current: "undone" | "done" | "unsure";
  desired: "undone" | "done" | "unsure";
  id: string;
  phase: "settled" | "waiting" | "ready" | "running" | "parked";
  priority: number;
  submittedAt: string;
  type: string;
  unsettled: number;
  updatedAt: string;
  alerts?: Alert[];
  completeBy?: string;
  definition?: unknown;
  definitionBytes?: number;
  givenUp?: Mark;
  input?: unknown;
  inputBytes?: number;
  key?: string;
  labels?: Record<string, string>;
  restarts?: number;
  settledAt?: string;
  states?: StateNames;
  steps?: Record<string, Step>;
  then?: "undone" | "done" | "unsure";
}

export interface StepDetail {
  action: string;
  agent: string;
  current: "undone" | "done" | "unsure";
  desired: "undone" | "done" | "unsure";
  direction: "do" | "undo";
  failures: number;
  job: string;
  key: string;
  name: string;
  phase: "settled" | "waiting" | "ready" | "running" | "parked";
  run: number;
  turn: number;
  was: "undone" | "done" | "unsure";
  after?: string[];
  availableAt?: string;
  completeBy?: string;
  endedAt?: string;
  givenUp?: boolean;
  input?: unknown;
  inputBytes?: number;
  lastError?: RunError;
  limits?: StepLimit[];
  lockedBy?: string;
  lockedUntil?: string;
  outcome?: "done" | "failed" | "rejected" | "returned" | "expired";
  output?: unknown;
  outputBytes?: number;
  progress?: unknown;
  readyAt?: string;
  returns?: number;
  rung?: number;
  skipped?: boolean;
  startedAt?: string;
  waits?: number;
  why?: Reason;
}

export interface FieldError {
  message: string;
  pointer: string;
  column?: number;
  hint?: string;
  line?: number;
}

export interface ItemProblem {
  code: string;
  detail: string;
  errors: FieldError[];
  hint?: string;
}

export interface BatchResult {
  created?: boolean;
  error?: ItemProblem;
  id?: string;
  key?: string;
}

export interface Entry {
  at: string;
  event: string;
  author?: string;
  detail?: string;
  run?: number;
  step?: string;
}
