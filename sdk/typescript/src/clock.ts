// Until when a run is ours, on two clocks, and how long to wait. All times are milliseconds.

export const maxMs = 10 * 365 * 24 * 3_600_000;

/** A moment on two clocks. The monotonic one cannot be set, and may stand still while the machine is suspended; the wall
 * clock goes on then. A time is reached when the first of the two clocks reaches it. */
export interface Instant {
  readonly mono: number;
  readonly wall: number;
}

export const now = (): Instant => ({ mono: performance.now(), wall: Date.now() });
export const add = (a: Instant, ms: number): Instant => ({ mono: a.mono + ms, wall: a.wall + ms });
export const reached = (a: Instant, at: Instant): boolean => at.mono >= a.mono || at.wall >= a.wall;
export const left = (a: Instant, at: Instant): number => Math.max(0, Math.min(a.mono - at.mono, a.wall - at.wall));
export const later = (a: Instant, b: Instant): Instant =>
  ({ mono: Math.max(a.mono, b.mono), wall: Math.max(a.wall, b.wall) });
export const earlier = (a: Instant, b: Instant): Instant =>
  ({ mono: Math.min(a.mono, b.mono), wall: Math.min(a.wall, b.wall) });

/** Milliseconds that came from outside. */
export function millis(ms: unknown): number {
  return typeof ms === "number" ? Math.min(Math.max(ms, 0), maxMs) : 0;
}

/** Sleeps; false if the signal came first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const stop = (): void => { clearTimeout(timer); resolve(false); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(true); },
      Math.min(ms, 2 ** 31 - 1));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Where a run gets its time from. Tests have one of their own. */
export interface Clock {
  now(): Instant;
  sleep(ms: number, signal: AbortSignal): Promise<boolean>;
}

export const realClock: Clock = { now, sleep };

/** Grows from base to most by doubling, and is drawn between half of that and all of it, so that agents which failed
 * together do not come back together. */
export class Backoff {
  readonly #base: number;
  readonly #most: number;
  #next = 0;

  constructor(base: number, most: number) {
    this.#base = base;
    this.#most = most;
  }

  reset(): void {
    this.#next = 0;
  }

  /** How long to wait now; atLeast is what a server asked for (Retry-After). Up to half of that is added: clients that were refused
   *  together must not all come back together. */
  draw(atLeast = 0): number {
    this.#next = Math.min(Math.max(2 * this.#next, this.#base), this.#most);
    return atLeast * (1 + Math.random() / 2) + this.#next * (0.5 + Math.random() / 2);
  }

  /** Sleeps; false if the signal came first. */
  pause(until: AbortSignal, atLeast = 0): Promise<boolean> {
    return sleep(this.draw(atLeast), until);
  }
}
