// Times are the server's. The clock of this computer may be wrong, so the difference is measured with each response.

/** The difference between the server's clock and this one, in milliseconds. */
let offset = 0;

/** The header Date has whole seconds, and a response takes a while: smaller differences mean nothing. */
const tolerance = 2000;

/** Takes the header Date of a response. */
export function observeServerTime(header: string | null, here = Date.now()): void {
  const there = header === null ? NaN : Date.parse(header);
  if (Number.isNaN(there)) return;
  const measured = there + 500 - here;
  if (Math.abs(measured - offset) > tolerance) offset = Math.abs(measured) > tolerance ? measured : 0;
}

/** The server's time, in milliseconds. */
export function serverNow(here = Date.now()): number {
  return here + offset;
}

const units: [name: string, ms: number][] = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

/** A length of time in its one or two largest units: 9 s, 4 min, 2 h 10 min, 3 d. */
export function span(ms: number): string {
  const rounded = Math.max(0, Math.floor(ms / 1000)) * 1000;
  if (rounded === 0) return ms > 0 && ms < 1000 ? `${Math.floor(ms)} ms` : "0 s";
  const i = units.findIndex(([, size]) => rounded >= size);
  const [name, size] = units[i]!;
  const n = Math.floor(rounded / size);
  const next = units[i + 1];
  if (!next || n >= 10) return `${n} ${name}`;
  const rest = Math.floor((rounded - n * size) / next[1]);
  return rest > 0 && next[0] !== "s" ? `${n} ${name} ${rest} ${next[0]}` : `${n} ${name}`;
}

/** A time as a distance from now: "now", "4 min ago", "in 2 h". */
export function relative(at: string, now: number): string {
  const then = Date.parse(at);
  if (Number.isNaN(then)) return at;
  const ago = now - then;
  if (Math.abs(ago) < 1000) return "now";
  return ago > 0 ? `${span(ago)} ago` : `in ${span(-ago)}`;
}

/** A time in full, in this computer's time zone and in UTC, for tooltips. */
export function absolute(at: string): string {
  const then = new Date(at);
  if (Number.isNaN(then.getTime())) return at;
  const two = (n: number, width = 2) => String(n).padStart(width, "0");
  const zone = -then.getTimezoneOffset();
  const name = zone === 0 ? "UTC" : `UTC${zone < 0 ? "−" : "+"}${two(Math.floor(Math.abs(zone) / 60))}:${two(Math.abs(zone) % 60)}`;
  const local = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  return `${local}.${two(then.getMilliseconds(), 3)} ${name}` + (zone === 0 ? "" : ` (${at})`);
}

/** A time in few characters, for lists: the time of day today, else day and time, or the date if it is of another year. */
export function compact(at: string, now: number, utc: boolean): string {
  const then = new Date(at);
  if (Number.isNaN(then.getTime())) return at;
  const zone = utc ? 0 : -then.getTimezoneOffset() * 60_000;
  const text = new Date(then.getTime() + zone).toISOString();
  const today = new Date(now + zone).toISOString();
  const short = text.slice(0, 10) === today.slice(0, 10) ? text.slice(11, 19) : text.slice(0, 4) === today.slice(0, 4) ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(0, 10);
  return short + (utc ? "Z" : "");
}

/** The short name of the time zone at a time: CET, EST, UTC, or GMT+5:30 where it has no name. */
export function zoneName(at: Date, utc: boolean): string {
  if (utc) return "UTC";
  const name = (locale: string) => new Intl.DateTimeFormat(locale, { timeZoneName: "short" }).formatToParts(at).find((part) => part.type === "timeZoneName")?.value ?? "";
  const british = name("en-GB"); // knows CET, and not EST
  return /^GMT./.test(british) ? name("en-US") : british;
}

/** A time to the minute, with its zone: 2026-11-28 01:30 UTC. */
export function stamp(at: Date, utc: boolean): string {
  return `${minute(at, utc).replace("T", " ")} ${zoneName(at, utc)}`;
}

/** A time as a field for times has it: 2026-11-28T01:30. */
export function minute(at: Date, utc: boolean): string {
  return new Date(at.getTime() - (utc ? 0 : at.getTimezoneOffset() * 60_000)).toISOString().slice(0, 16);
}

/** The time of day, for banners. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}
