// Keyboard shortcuts. No single key executes an act.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { go } from "./place.ts";
import { link } from "./router.ts";

/** Whether the list of shortcuts is open. */
export const helpOpen = signal(false);

/** The shortcuts, for the help dialog, by where they work. */
export const shortcuts: [where: string, keys: [keys: string[], what: string][]][] = [
  [
    "Everywhere",
    [
      [["/"], "filter, or find a step"],
      [["g", "o"], "overview"],
      [["g", "j"], "jobs"],
      [["g", "a"], "alerts"],
      [["g", "b"], "bulk acts"],
      [["g", "e"], "agents"],
      [["g", "h"], "hosts"],
      [["g", "l"], "limits"],
      [["g", "c"], "schedules"],
      [["g", "d"], "definitions"],
      [["g", "w"], "webhooks"],
      [["g", "n"], "nodes"],
      [["g", "s"], "submit"],
      [["g", "t"], "tokens"],
      [["g", "u"], "audit log"],
      [["Esc"], "close, leave a field"],
      [["?"], "this help"],
    ],
  ],
  [
    "Lists",
    [
      [["j", "k"], "next and previous row"],
      [["Enter"], "open the row"],
      [["x"], "jobs: select the row"],
      [["Shift", "x"], "jobs: select the rows from the last one to this"],
      [["a"], "jobs: act on the selected ones"],
    ],
  ],
  [
    "A job",
    [
      [["a"], "go to the actions"],
      [["[", "]"], "previous and next step, in the order of the graph"],
      [["←", "→", "↑", "↓"], "follow edges; move the graph if no step is chosen, or with Shift; move the timeline, and go from run to run"],
      [["+", "-"], "zoom the graph or the timeline"],
      [["f"], "fit the graph into the window; show the whole time"],
      [["."], "copy the id"],
    ],
  ],
];

const pages: Record<string, string> = {
  o: link.overview(), j: link.jobs(), a: link.alerts(), b: link.bulk(), e: link.agents(), h: link.hosts(), l: link.limits(), c: link.schedules(), d: link.definitions(), w: link.webhooks(), n: link.nodes(), s: link.submit(), t: link.tokens(), u: link.audit(),
};

type Handler = () => void;
let ofPage: Record<string, Handler>[] = [];

/** Keys of a page or a part of it, while it is shown: they work from its first frame. */
export function useKeys(handlers: Record<string, Handler>): void {
  useLayoutEffect(() => {
    ofPage = [...ofPage, handlers];
    return () => {
      ofPage = ofPage.filter((h) => h !== handlers);
    };
  });
}

/** How long the second key of a pair may take. */
const pairTime = 1500;

export function startKeys(): void {
  let prefixAt = -Infinity;
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return; // its keys are its own
    const { key } = event;
    const target = event.target instanceof HTMLElement ? event.target : document.body;
    if (target.matches("input, select, textarea, [contenteditable]")) {
      if (key === "Escape") target.blur();
      return;
    }
    const paired = performance.now() - prefixAt < pairTime;
    prefixAt = -Infinity;
    const page = pages[key];
    if (paired && page !== undefined) {
      event.preventDefault();
      go(page);
      return;
    }
    const handler = ofPage.findLast((handlers) => handlers[key])?.[key];
    if (handler) {
      event.preventDefault();
      handler();
      return;
    }
    switch (key) {
      case "g":
        prefixAt = performance.now();
        break;
      case "?":
        helpOpen.value = true;
        break;
      case "/":
        focusFilter();
        break;
      case "j":
      case "k":
        moveRow(key === "j" ? 1 : -1);
        break;
      default:
        return;
    }
    event.preventDefault();
  });
}

/** Moves the focus to the filter of the page; a page without one leads to that of the jobs. */
function focusFilter(): void {
  const filter = () => document.querySelector<HTMLElement>("[data-filter]");
  if (filter()) filter()!.focus();
  else {
    go(link.jobs());
    requestAnimationFrame(() => requestAnimationFrame(() => filter()?.focus()));
  }
}

function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("a[data-row]")];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
  rows[next]!.focus();
  rows[next]!.scrollIntoView({ block: "nearest" });
}
