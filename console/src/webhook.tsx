// Receivers of notifications as they are shown: their states, and parts that their pages and dialogs use.
import { unknownMark, type Mark } from "./state.ts";
import type { Delivery, Webhook } from "./types.ts";

/** The API counts the pending and the dead notifications of a receiver up to this number. */
const mostCounted = 500;

const receiverMarks: Record<string, Mark> = {
  active: { ...unknownMark("active"), sign: "✓", tone: "good" },
  failing: { ...unknownMark("failing"), sign: "↻", tone: "warn" },
  full: { ...unknownMark("full"), sign: "■", tone: "bad" },
  paused: { ...unknownMark("paused"), sign: "–", tone: "warn" },
};

/** What the state of a receiver means, if it needs an explanation. */
export function stateText({ state, oldest, pausedReason }: Webhook): string {
  switch (state) {
    case "failing":
      return oldest?.error ?? "";
    case "full":
      return "Too many of its notifications are undelivered: new ones are dead at once.";
    case "paused":
      return pausedReason ?? "";
  }
  return "";
}

export const receiverMark = (hook: Webhook): Mark => ({ ...(receiverMarks[hook.state] ?? unknownMark(hook.state)), detail: stateText(hook) });

export function deliveryMark({ state, attempts }: Delivery): Mark {
  switch (state) {
    case "pending":
      return attempts > 0 ? { ...unknownMark("pending"), sign: "↻", tone: "warn" } : { ...unknownMark("pending"), sign: "○" };
    case "delivered":
      return { ...unknownMark("delivered"), sign: "✓", tone: "good" };
    case "dead":
      return { ...unknownMark("dead"), sign: "■", tone: "bad" };
  }
  return unknownMark(state);
}

/** The URL as far as it is no secret: chats have their secret in the path. */
export function hostOf(url: string): { host: string; more: boolean } {
  const [host = ""] = /^https?:\/\/[^/?#]*/i.exec(url) ?? [];
  return { host, more: url.length > host.length + 1 };
}

/** Where the notifications go. */
export function Target({ hook }: { hook: Webhook }) {
  if (hook.stream) return <span class="muted">stream</span>;
  const { host, more } = hostOf(hook.url ?? "");
  return (
    <bdi>
      {host}
      {more && "/…"}
    </bdi>
  );
}

/** The types of jobs whose changes are reported. */
export function Types({ hook: { types = [] } }: { hook: Webhook }) {
  if (types.length === 0) return <span class="muted">all</span>;
  return (
    <>
      {types.map((type, i) => (
        <>
          {i > 0 && ", "}
          <bdi>{type}</bdi>
        </>
      ))}
    </>
  );
}

export const numberText = (n: number) => (n >= mostCounted ? `${mostCounted}+` : String(n));
