// Groups of alerts.
import type { Alert } from "./types.ts";

/** The alerts with the same type, kind, step and code. */
export interface Group {
  kind: string;
  type?: string;
  step?: string;
  code?: string;
  /** The alerts that are open. */
  count: number;
  /** Also those that are no longer open: a group stays where it is until the page is loaded again. */
  size: number;
  oldest: string;
  /** The most failures of a step when its alert was raised. */
  attempts: number;
}

/** Returns alerts in groups, the largest first. Groups of one size are in the order of their oldest alerts. */
export function grouped(alerts: readonly Alert[], gone: ReadonlySet<string>): Group[] {
  const groups = new Map<string, Group>();
  for (const { id, kind, type, step, code, raisedAt, attempts = 0 } of alerts) {
    const key = JSON.stringify([kind, type, step, code]);
    let g = groups.get(key);
    if (!g) {
      g = { kind, count: 0, size: 0, oldest: raisedAt, attempts: 0, ...(type && { type }), ...(step && { step }), ...(code && { code }) };
      groups.set(key, g);
    }
    g.size++;
    if (!gone.has(String(id))) g.count++;
    g.attempts = Math.max(g.attempts, attempts);
    if (raisedAt < g.oldest) g.oldest = raisedAt;
  }
  return [...groups.values()].sort((a, b) => b.size - a.size || (a.oldest < b.oldest ? -1 : 1));
}
