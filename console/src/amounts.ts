// Amounts of hosts: what a host has, and what its runs take of it. Pure.

/** The amounts that hosts have most often, in the order in which they are shown. All others follow by name. */
const first = ["slots", "cpu", "memory"];

const units: [unit: string, size: number][] = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

/** An amount as a number; the memory "4GiB" is 4294967296. NaN: the text is not an amount. */
export function amountOf(value: unknown): number {
  const text = String(value);
  const [, number = "", unit = ""] = /^(\d+(?:\.\d+)?)([KMGT]iB)?$/.exec(text) ?? [];
  return number === "" ? NaN : Number(number) * (units.find(([name]) => name === unit)?.[1] ?? 1);
}

/** An amount in few characters: memory in the largest unit, other amounts with at most three decimals. */
export function amountText(name: string, n: number): string {
  if (name === "memory" && n > 0) {
    const [unit, size] = units.find(([, size]) => n >= size) ?? ["bytes", 1];
    const shown = n / size;
    return `${shown >= 100 || Number.isInteger(shown) ? Math.round(shown) : shown.toFixed(1)} ${unit}`;
  }
  return String(Math.round(n * 1000) / 1000);
}

export interface Amount {
  name: string;
  used: number;
  capacity: number;
}

/** The amounts of a host, in the order in which they are shown. */
export function amountsOf(capacity: Record<string, unknown>, used: Record<string, unknown>): Amount[] {
  const rank = (name: string) => (first.includes(name) ? first.indexOf(name) : first.length);
  return [...new Set([...Object.keys(capacity), ...Object.keys(used)])]
    .sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1))
    .map((name) => ({ name, used: amountOf(used[name] ?? 0), capacity: amountOf(capacity[name] ?? 0) }));
}

/** What a run takes of its host, in words: "1 slot" is "slots 1". Labels and the grid follow the amounts. */
export function requiresText(requires: Record<string, unknown>): string {
  const parts: string[] = [];
  const { labels, grid, ...amounts } = requires;
  for (const { name, capacity } of amountsOf(amounts, {})) parts.push(`${name} ${Number.isNaN(capacity) ? String(amounts[name]) : amountText(name, capacity)}`);
  for (const [name, value] of Object.entries((labels as Record<string, unknown> | undefined) ?? {})) parts.push(`${name}=${String(value)}`);
  if (grid) parts.push(`grid ${String(grid)}`);
  return parts.join(", ");
}
