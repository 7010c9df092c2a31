// Two families: what a server said no to (PerdureError), and what a handler says about its run (Failed).

import type { FieldError } from "./types.ts";

/** A code that does not change: docs/errors.md has them all. */
export type ErrorCode = "invalid" | "malformed" | "tooLarge" | "notFound" | "conflict" | "backlogFull" | "tooManyRequests" | "timeout" | "unauthenticated" | "forbidden" | "misdirected"
  | "unavailable" | "schema" | "inUse" | "noSpace" | "methodNotAllowed" | "unsupportedMediaType" | "internal" | (string & {});

/** A call that came to nothing. With code "unavailable", what was sent may have been done all the same. */
export class PerdureError extends Error {
  override readonly name = "PerdureError";
  readonly code: ErrorCode;
  readonly hint: string;
  /** 0 where there was no answer. */
  readonly status: number;
  /** Each fault of a definition, with its place; a line and column only where it was sent as text. The message has the
   * first few of them, those that are deepest in the definition first. */
  readonly errors: FieldError[];
  readonly retryAfterMs: number;

  constructor(code: ErrorCode, message: string,
    more: { hint?: string; status?: number; errors?: FieldError[]; retryAfterMs?: number; cause?: unknown } = {}) {
    super(more.hint ? `${message} (${more.hint})` : message, { cause: more.cause });
    this.code = code;
    this.hint = more.hint ?? "";
    this.status = more.status ?? 0;
    this.errors = more.errors ?? [];
    this.retryAfterMs = more.retryAfterMs ?? 0;
  }

  /** Whether the server or its store does not answer, or the server has reached a bound: the call may be repeated. */
  get away(): boolean {
    return this.code === "unavailable" || this.code === "tooManyRequests" || this.code === "schema" || this.code === "inUse";
  }
}

const maxFaultsTold = 5;

/** The error that a problem (RFC 9457) is. text: what is wrong was sent as text, which has lines. */
export function refusal(problem: Record<string, unknown>, status: number, retryAfterMs: number, text = false): PerdureError {
  const code = String(problem.code);
  const all = Array.isArray(problem.errors) ? problem.errors as FieldError[] : [];
  const errors = text ? all : all.map(({ line: _, column: __, ...fault }) => fault);
  if (errors.length === 0) {
    return new PerdureError(code, String(problem.detail || problem.title || code), { hint: String(problem.hint ?? ""), status, retryAfterMs });
  }
  const told = [...errors].sort((a, b) => depth(b) - depth(a)).slice(0, maxFaultsTold).map(tell);
  if (errors.length > told.length) told.push(`and ${errors.length - told.length} more`);
  return new PerdureError(code, told.join("; "), { status, retryAfterMs, errors });
}

function depth(fault: FieldError): number {
  return (fault.pointer ?? "").split("/").length;
}

function tell({ pointer, line, column, message, hint }: FieldError): string {
  const place = line ? `line ${line}, column ${column ?? 1}` : pointer;
  return (place ? `${place}: ` : "") + message + (hint ? ` (${hint})` : "");
}

/** The grace was over before everything was told: those runs expire, and are done again. */
export class NotDrained extends Error {
  override readonly name = "NotDrained";
}

export interface FailedOptions {
  /** By which `retry.notOn` of a definition knows it. */
  code?: string;
  /** The next attempt does not come before so much time has passed. */
  retryAfterMs?: number;
  /** Nothing was changed, so the step is where it was before instead of unsure. */
  noEffect?: boolean;
  cause?: unknown;
}

/** A handler throws it to say more than that the run failed. The step is tried again. */
export class Failed extends Error {
  override readonly name: string = "Failed";
  readonly code: string;
  readonly retryAfterMs: number;
  readonly noEffect: boolean;

  constructor(message: string, options: FailedOptions = {}) {
    super(message, { cause: options.cause });
    this.code = options.code ?? "";
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.noEffect = options.noEffect ?? false;
  }
}

/** Trying again is pointless: the step's `onFailure` is next. */
export class Rejected extends Failed {
  override readonly name = "Rejected";
}

/** Failed, and the next attempt should not come before `ms` have passed. */
export class RetryAfter extends Failed {
  override readonly name = "RetryAfter";

  constructor(ms: number, message: string, options: Omit<FailedOptions, "retryAfterMs"> = {}) {
    super(message, { ...options, retryAfterMs: ms });
  }
}

/** Failed, and nothing was changed. */
export class NoEffect extends Failed {
  override readonly name = "NoEffect";

  constructor(message: string, options: Omit<FailedOptions, "noEffect"> = {}) {
    super(message, { ...options, noEffect: true });
  }
}

export type CancelReason = "timeUp" | "notOurs" | "stopped" | "draining";

/** The reason of a run's signal, once the run is over: let it pass. */
export class Cancelled extends Error {
  override readonly name = "Cancelled";
  readonly reason: CancelReason;

  constructor(reason: CancelReason) {
    super({
      timeUp: "the run's time is up", notOurs: "the run no longer belongs to this process", stopped: "the run is no longer wanted",
      draining: "the process is draining",
    }[reason]);
    this.reason = reason;
  }
}
