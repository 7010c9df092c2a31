// Virtual time: it passes only while something sleeps by it, and then at once.

import type { Clock, Instant } from "../clock.ts";

interface Timer {
  at: number;
  fire: () => void;
}

export class VirtualClock implements Clock {
  readonly #began = Date.now();
  #elapsed = 0;
  readonly #sleepers = new Set<Timer>();
  readonly #alarms = new Set<Timer>();
  #turning = false;

  /** Milliseconds since the clock was made. */
  get elapsed(): number {
    return this.#elapsed;
  }

  now(): Instant {
    return { mono: this.#elapsed, wall: this.#began + this.#elapsed };
  }

  /** Sleeps; false if the signal came first. As soon as the program has nothing else to do at once, the time has come. */
  sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve(false);
      const end = (whole: boolean): void => {
        this.#sleepers.delete(timer);
        signal?.removeEventListener("abort", stop);
        resolve(whole);
      };
      const stop = (): void => end(false);
      const timer = { at: this.#elapsed + Math.max(0, ms), fire: () => end(true) };
      signal?.addEventListener("abort", stop, { once: true });
      this.#sleepers.add(timer);
      this.#turn();
    });
  }

  /** Calls fire when the time has come, unless it is cancelled before. An alarm alone lets no time pass. */
  alarm(ms: number, fire: () => void): () => void {
    const timer = { at: this.#elapsed + ms, fire };
    this.#alarms.add(timer);
    return () => this.#alarms.delete(timer);
  }

  /** Lets time pass until the next alarm of all, which fires. */
  skipToAlarm(): void {
    const next = earliest(this.#alarms);
    if (next) this.#reach(next);
  }

  #turn(): void {
    if (this.#turning) return;
    this.#turning = true;
    setImmediate(() => {
      this.#turning = false;
      const next = earliest(this.#sleepers);
      if (!next) return;
      const alarm = earliest(this.#alarms);
      this.#reach(alarm && alarm.at <= next.at ? alarm : next);
      if (this.#sleepers.size > 0) this.#turn();
    });
  }

  #reach(timer: Timer): void {
    this.#elapsed = Math.max(this.#elapsed, timer.at);
    this.#alarms.delete(timer);
    timer.fire();
  }
}

function earliest(timers: Set<Timer>): Timer | undefined {
  let first: Timer | undefined;
  for (const timer of timers) if (!first || timer.at < first.at) first = timer;
  return first;
}
