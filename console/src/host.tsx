// Hosts as they are shown: their states, and the bars of what is in use.
import { amountsOf, amountText } from "./amounts.ts";
import { unknownMark, type Mark } from "./state.ts";
import type { Host } from "./types.ts";

const hostMarks: Record<string, Mark> = {
  ready: { ...unknownMark("ready"), sign: "●", tone: "good", detail: "The host claims runs." },
  draining: { ...unknownMark("draining"), sign: "◐", tone: "warn", detail: "The host gets no more runs. Those that it has may end until the deadline." },
  drained: { ...unknownMark("drained"), sign: "–", tone: "calm", detail: "The host gets no runs, and has none." },
  silent: { ...unknownMark("silent"), sign: "×", tone: "bad", detail: "The host has not registered again in time." },
};

/** The states of hosts, in the order of the filter. */
export const hostStates = Object.keys(hostMarks);

const noSpace: Mark = { ...unknownMark("no space"), sign: "■", tone: "bad", detail: "The state directory of the host is full: it gets no runs." };

export const hostMark = ({ state, noSpace: full }: Pick<Host, "state" | "noSpace">): Mark =>
  state === "ready" && full ? noSpace : (hostMarks[state] ?? unknownMark(state));

/** "2 of 8", "4 of 32 GiB": the unit is there once if it is the same. */
function usedText(name: string, used: number, capacity: number, of: string): string {
  const [n = "", unit] = amountText(name, used).split(" "), whole = amountText(name, capacity);
  return `${unit && !whole.endsWith(` ${unit}`) ? `${n} ${unit}` : n}${of}${whole}`;
}

/** How much of each amount of a host is in use; in a list only the first ones, in few words. */
export function Uses({ host, most = Infinity }: { host: Host; most?: number }) {
  const short = most !== Infinity;
  const amounts = amountsOf(host.capacity, host.used);
  const left = amounts.slice(most);
  return (
    <ul class="uses">
      {amounts.slice(0, most).map(({ name, used, capacity }) => {
        const text = usedText(name, used, capacity, " of ");
        return (
          <li key={name} title={`${name}: ${text} in use`}>
            <span class="use-name">
              <bdi>{name}</bdi>
            </span>{" "}
            {short ? usedText(name, used, capacity, "/") : text}
            {capacity > 0 && <meter min={0} max={capacity} value={Math.min(used, capacity)} aria-label={`${name} in use on ${host.name}`} />}
          </li>
        );
      })}
      {left.length > 0 && (
        <li class="muted more-uses" title={left.map(({ name, used, capacity }) => `${name}: ${usedText(name, used, capacity, " of ")} in use`).join("\n")}>
          and {left.length} more
        </li>
      )}
    </ul>
  );
}

/** The labels of a host, each of which leads to the hosts that have it. */
export function Labels({ labels = {}, to, most = Infinity }: { labels: Record<string, string> | undefined; to: (label: string) => string; most?: number }) {
  const all = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  if (all.length === 0) return <span class="muted">–</span>;
  const text = ([name, value]: [string, string]) => (value ? `${name}=${value}` : name);
  return (
    <span class="chips tight">
      {all.slice(0, most).map((label) => (
        <a class="chip small" key={label[0]} href={to(text(label))} title={`Hosts with the label ${text(label)}`}>
          <span class="cut">
            <bdi>{text(label)}</bdi>
          </span>
        </a>
      ))}
      {all.length > most && (
        <span class="muted small" title={all.slice(most).map(text).join("\n")}>
          and {all.length - most} more
        </span>
      )}
    </span>
  );
}
