// The statistics of the overview as texts and drawings. `perdure top` shows the same (cmd/perdure/top.go).
import { link } from "./router.ts";
import { relative, span } from "./time.ts";
import type { AlertStats, ReasonStats } from "./types.ts";

/** A count: Tally of the API, or a part of it. */
export interface Count {
  n: number;
  capped?: boolean | undefined;
  estimated?: boolean | undefined;
}

const units: [name: string, size: number][] = [["G", 1e9], ["M", 1e6], ["k", 1e3]];

/** A count: 912, 48.1k, 1.2M. A + marks a lower bound, and a ~ an estimate. */
export function short(n: Count): string {
  const unit = units.find(([, size]) => n.n >= size);
  const text = n.n < 10_000 || !unit ? String(n.n) : `${Math.floor((n.n / unit[1]) * 10) / 10}${unit[0]}`;
  return n.estimated ? `~${text}` : n.capped ? `${text}+` : text;
}

/** What a count that is short, capped or estimated stands for, as a tooltip. */
export function exactly(n: Count): string {
  if (n.estimated) return `about ${n.n} (an estimate)`;
  return n.capped ? `${n.n} or more (counting has stopped there)` : String(n.n);
}

/** Why steps wait, in a sentence. now is the server's time. */
export function reasonText(r: ReasonStats, now: number): string {
  const name = r.name ?? "";
  switch (r.reason) {
    case "noAgent":
      return r.lastClaim ? `no agent ${name} has claimed runs for ${span(now - Date.parse(r.lastClaim))}` : `no agent ${name} has claimed runs in the last day`;
    case "agentBusy":
      return `ready; agent ${name} has no slot free yet` + (r.oldest ? `, oldest ${span(now - Date.parse(r.oldest))}` : "");
    case "limit":
      if (r.max === 0) return `stopped by limit ${name} = 0`;
      if (r.max !== undefined && (r.used ?? 0) >= r.max) return `limit ${name} is full (${r.used} of ${r.max})`;
      if (r.perKeyMax !== undefined) return `limit ${name} is full for their keys (${r.perKeyMax} for each)`;
      if (r.rate) return `limit ${name} lets ${r.rate} through`;
      if (r.perKeyRate) return `limit ${name} lets ${r.perKeyRate} through for each key`;
      return `limit ${name} has no permit for them`;
    case "backoff":
      return `wait for a retry, next ${r.next ? relative(r.next, now) : "soon"}`;
    case "notYet":
      return `wait for a time, next ${r.next ? relative(r.next, now) : "soon"}`;
    case "afterSteps":
      return "wait for other steps, an approval or a signal";
  }
  return `${r.reason} ${name}`.trim();
}

/**
 * The list of jobs with steps that wait for a reason. Where an agent or a type says as much as the reason, they are the
 * filter: that list is faster, and has jobs with very many steps, too.
 */
export function reasonLink(r: ReasonStats): string {
  if (r.reason === "noAgent" || r.reason === "agentBusy") return link.jobs({ agent: r.name });
  const [kind, of] = r.reason === "limit" ? (r.name ?? "").split(":") : [];
  if (of && kind === "agent") return link.jobs({ agent: of });
  if (of && kind === "job") return link.jobs({ phase: "waiting", type: of });
  return link.jobs({ reason: r.reason });
}

/** The list of jobs with alerts of a group; that of alerts, if they are about no job. */
export function alertLink(a: AlertStats): string {
  if (!a.type) return link.alerts();
  return link.jobs({ alert: a.kind, type: a.type, step: a.step, error: a.step ? a.code : undefined });
}

/** The bars of a sparkline: each stands for the sum of some values, and has a height from 0 to 1. */
export function bars(values: readonly number[], most: number): number[] {
  const each = Math.max(1, Math.ceil(values.length / most));
  const sums: number[] = [];
  for (let i = 0; i < values.length; i += each) sums.push(values.slice(i, i + each).reduce((sum, n) => sum + n, 0));
  const highest = Math.max(1, ...sums);
  return sums.map((n) => n / highest);
}

export function total(values: readonly number[]): number {
  return values.reduce((sum, n) => sum + n, 0);
}

/** Numbers of this age, in milliseconds, are marked. */
export const staleAfter = 10_000;
