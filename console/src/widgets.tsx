// Small parts that all pages use. Text of users is always a child of <bdi>: it is never read as HTML, and text that runs
// from right to left does not change the direction of its surroundings.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Problem, reach } from "./api.ts";
import { plainText } from "./bidi.ts";
import { keptChoice } from "./choice.ts";
import { visible } from "./load.ts";
import type { Mark } from "./state.ts";
import { exactly, short, type Count as CountOf } from "./stats.ts";
import { absolute, clock, compact, relative, serverNow } from "./time.ts";

/** The server's time, once a second. */
export const now = signal(serverNow());
setInterval(() => {
  if (visible.peek()) now.value = serverNow();
}, 1000);

/** A symbol of the sprite in index.html. */
export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" aria-hidden="true" focusable="false">
      <use href={`#i-${name}`} />
    </svg>
  );
}

/** A state: sign, word and colour. */
export function State({ mark, pill, children }: { mark: Mark; pill?: boolean; children?: ComponentChildren }) {
  return (
    <span class={`state ${mark.tone}${pill ? " pill" : ""}`} title={mark.detail || undefined}>
      <span class="sign" aria-hidden="true">
        {mark.sign}
      </span>
      <bdi>{mark.word}</bdi>
      {children}
    </span>
  );
}

/** A button that opens a list of buttons or links. Esc, a choice, and a press elsewhere close it. */
export function Menu({ title, label, right, children }: { title: ComponentChildren; label: string; right?: boolean; children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, []);
  const close = () => {
    menu.current!.open = false;
    menu.current!.querySelector("summary")!.focus(); // a dialog that a choice opens gives the focus back to it
  };
  return (
    <details
      class={`menu${right ? " right" : ""}`}
      ref={menu}
      onKeyDown={(event) => {
        const items = [...event.currentTarget.querySelectorAll<HTMLElement>(".menu-items :is(a, button:not(:disabled))")];
        const at = items.indexOf(document.activeElement as HTMLElement);
        if (event.key === "Escape" && menu.current!.open) close();
        else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
          menu.current!.open = true;
          const by = event.key === "ArrowDown" ? 1 : -1;
          items[at < 0 ? (by > 0 ? 0 : items.length - 1) : (at + by + items.length) % items.length]?.focus();
        } else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <summary class="button" aria-label={label}>{title} ▾</summary>
      <div class="menu-items" onClick={(event) => (event.target as Element).closest("a, button:not([data-stay])") && close()}>
        {children}
      </div>
    </details>
  );
}

/** How times are shown. */
export const { value: timeStyle, next: nextTimeStyle } = keptChoice<"relative" | "local" | "UTC">("perdure.times", ["relative", "local", "UTC"]);

/** A time as the user wants times, with the absolute time as a tooltip. */
export function Ago({ at }: { at: string | undefined }) {
  if (!at) return <span class="muted">–</span>;
  return (
    <time dateTime={at} title={absolute(at)} class="nowrap">
      {timeStyle.value === "relative" ? relative(at, now.value) : compact(at, now.value, timeStyle.value === "UTC")}
    </time>
  );
}

/** What has happened after an act, for some seconds. */
export const actMessage = signal<string | undefined>(undefined);
const messageFor = 10_000;

/** Shows what has happened, at the bottom of the window. */
export function ActMessage() {
  const text = actMessage.value;
  useEffect(() => {
    if (text === undefined) return;
    const timer = setTimeout(() => (actMessage.value = undefined), messageFor);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div class="act-message" role="status">
      {text !== undefined && (
        <div class="note good">
          <div class="body">
            <bdi>{text}</bdi>
          </div>
          <button type="button" class="bare" aria-label="Close the message" onClick={() => (actMessage.value = undefined)}>
            <Icon name="close" />
          </button>
        </div>
      )}
    </div>
  );
}

/** A button that copies a text. */
export function Copy({ text, what, label }: { text: string; what: string; label?: string }) {
  const copied = useSignal(false);
  useEffect(() => {
    if (!copied.value) return;
    const timer = setTimeout(() => (copied.value = false), 1500);
    return () => clearTimeout(timer);
  }, [copied.value]);
  return (
    <button type="button" class="bare" title={`Copy ${what}`} aria-label={`Copy ${what}`} onClick={async () => (copied.value = await copyText(text))}>
      {copied.value ? <span role="status">copied</span> : <Icon name="copy" />}
      {label}
    </button>
  );
}

/** Copies a text. Pages of plain HTTP on another host than localhost have no clipboard API. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Why a call was refused, and how to mend it. */
export function ProblemNote({ problem, again }: { problem: Problem; again?: () => void }) {
  if (problem.code === "unreachable" && reach.value.nextAttemptAt) return null; // the banner says it
  return (
    <div class="note bad" role="alert">
      <Icon name="warn" />
      <div class="body">
        <p class="said">
          <bdi>{problem.message}</bdi>
        </p>
        {problem.hint && (
          <p class="muted">
            <bdi>{problem.hint}</bdi>
          </p>
        )}
        {(problem.faults.length > 1 || problem.faults.some((fault) => !problem.message.includes(fault.message))) && (
          <ul>
            {problem.faults.slice(0, mostFaults).map((fault) => (
              <li>
                <code>
                  <bdi>{fault.line ? `line ${fault.line}` + (fault.column ? `:${fault.column}` : "") : fault.pointer || "/"}</bdi>
                </code>{" "}
                <bdi>{fault.message}</bdi>
                {fault.hint && (
                  <span class="muted">
                    {" "}
                    <bdi>({fault.hint})</bdi>
                  </span>
                )}
              </li>
            ))}
            {problem.faults.length > mostFaults && <li class="muted">{problem.faults.length - mostFaults} more</li>}
          </ul>
        )}
        <p class="muted small">
          code <code>{problem.code}</code>
        </p>
      </div>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

const mostFaults = 20;

/** Rows that stand for data which has not arrived; invisible for the first 150 ms. */
export function Waiting() {
  return (
    <div class="waiting" role="status">
      <span class="hidden">Loading</span>
      <span />
      <span />
      <span />
      <span />
      <span />
    </div>
  );
}

/** How old the data is, if that matters. */
export function AsOf({ at }: { at: number }) {
  void now.value;
  const age = at ? Date.now() - at : 0;
  return age > staleAfter ? <span class="muted small">as of {clock(at)}</span> : null;
}

const staleAfter = 15_000;

/** The line above a list: how many rows there are, and a button for those that are newer. It always has the same height, so that no row moves. */
export function Newer({ list, noun, show, children }: { list: { newer: number; capped: boolean }; noun: string; show: () => void; children: ComponentChildren }) {
  return (
    <div class="announce">
      <span class="muted small">{children}</span>
      <span role="status">
        {list.newer > 0 && (
          <button type="button" onClick={show}>
            Show {list.capped ? `${list.newer} or more newer ${noun}s` : plural(list.newer, `newer ${noun}`)}
          </button>
        )}
      </span>
    </div>
  );
}

/** Sets the title of the tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${plainText(title)} · Perdure` : "Perdure";
  }, [title]);
}

/** "1 job", "12 jobs". */
export function plural(n: number | bigint, noun: string): string {
  return `${n} ${nouns(n, noun)}`;
}

/** "job" for one, else "jobs". */
export function nouns(n: number | bigint, noun: string): string {
  return n == 1 ? noun : `${noun}s`;
}

/** A count that leads to what it counts; zero leads nowhere. what says what it counts: its name begins with the visible text. */
export function Count({ n, to, what, children, ...rest }: { n: CountOf; to: string; what: string; class?: string; children?: ComponentChildren }) {
  if (n.n === 0) return <span class="muted">0</span>;
  return (
    <a href={to} title={`${exactly(n)} ${what}`} aria-label={`${short(n)} ${what}`} {...rest}>
      {short(n)}
      {children}
    </a>
  );
}

/** A size, for values that are not shown. */
export function sizeText(bytes: number): string {
  if (bytes < 1 << 10) return plural(bytes, "byte");
  if (bytes < 1 << 20) return `${Math.round(bytes / (1 << 10))} KiB`;
  return `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}

/** Scrolls a bar of links, which may be wider than the window, so that the current one is visible. */
export function showCurrent(bar: HTMLElement | null): void {
  const current = bar?.querySelector<HTMLElement>("[aria-current]");
  if (!bar || !current) return;
  const left = current.offsetLeft - bar.offsetLeft;
  if (left < bar.scrollLeft || left + current.offsetWidth > bar.scrollLeft + bar.clientWidth) bar.scrollLeft = left - bar.clientWidth / 4;
}

/** A text as one word of a shell. */
export function shellWord(text: string): string {
  return /^[\w:/.@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
