/**
 * Perdure for TypeScript: agents that do and undo the steps of durable jobs, and a client.
 *
 *     const payments = new Agent("payments").handle<Charge, Receipt>("charge", {
 *       do: async (input, run) => await bank.charge(input.amount, { idempotencyKey: run.key, signal: run.signal }),
 *       undo: async (input, output, run) => await bank.refundByKey(run.doKey),
 *     });
 *     await new Client("http://127.0.0.1:7420").serve([payments]);
 */

export { Agent, type Op, Run, testRun } from "./agent.ts";
export type { ArtifactReference } from "./artifact.ts";
export { type ActOptions, type AlertFilter, type CallOptions, Client, type ClientOptions, type Definition, type HostSettings, type ListFilter, type PutScheduleOptions, type ScheduleFilter, type ServeOptions,
  type SignalOptions, type SubmitAllOptions, type SubmitOptions, atRest } from "./client.ts";
export type * from "./definition.ts";
export { type CancelReason, Cancelled, type ErrorCode, Failed, type FailedOptions, NoEffect, NotDrained, PerdureError,
  Rejected, RetryAfter } from "./errors.ts";
export { Host, type Log } from "./host.ts";
export { parse, stringify } from "./json.ts";
export { Listing, type Page, type PageOptions } from "./listing.ts";
export type * from "./types.ts";
