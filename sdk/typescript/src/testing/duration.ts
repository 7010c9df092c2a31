// Durations as definitions have them: Go's syntax, and d for days.

const units: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };

/** Milliseconds of a duration. */
export function durationMs(text: string, what: string): number {
  if (!/^(\d+(\.\d*)?(d|h|ms|m|s|us|µs|ns))+$/.test(text)) {
    throw new RangeError(`${what}: ${JSON.stringify(text)} is no duration: write 500ms, 30s, 1h30m or 2d`);
  }
  let ms = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d*)?)(d|h|ms|m|s|us|µs|ns)/g)) ms += Number(number) * units[unit!]!;
  return ms;
}
