// Data of the API as pages need it: loaded when it is first shown, loaded again while it is visible, and kept while the
// server does not answer.
import { computed, signal, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, loginNeeded, Problem, returned } from "./api.ts";

export interface Loaded<T> {
  data?: T;
  /** Why the latest attempt failed. The data, if there is any, is that of an earlier one. */
  problem?: Problem;
  /** When the data arrived, by this computer's clock; 0: there is none. */
  at: number;
}

const hidden = signal(document.hidden);
document.addEventListener("visibilitychange", () => {
  hidden.value = document.hidden;
});

/** Whether the page is visible: the tab is, and no login covers it. Hidden pages load nothing. */
export const visible = computed(() => !hidden.value && !loginNeeded.value);

/** Data that was shown before appears at once when a page is opened again. */
const kept = new Map<string, Loaded<unknown>>();
const mostKept = 20;

function keep(url: string, loaded: Loaded<unknown>): void {
  kept.delete(url);
  kept.set(url, loaded);
  if (kept.size > mostKept) kept.delete(kept.keys().next().value!);
}


const nothing: Loaded<never> = { at: 0 };

/** Loads a URL, and again every so many milliseconds after an answer (0: only once). An empty URL loads nothing. */
export function useLoad<T>(url: string, every: number): Loaded<T> & { again: () => void } {
  const latest = useSignal<{ url: string; loaded: Loaded<T> }>({ url: "", loaded: nothing });
  const wanted = useSignal({ url, every, turn: 0 });
  useEffect(() => {
    if (wanted.peek().url !== url || wanted.peek().every !== every) wanted.value = { url, every, turn: 0 };
  }, [url, every]);

  useSignalEffect(() => {
    const { url, every } = wanted.value;
    void returned.value; // load again when the server is back
    if (!url || !visible.value) return;
    const leave = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        const data = await call<T>(url, { signal: leave.signal });
        if (leave.signal.aborted) return;
        latest.value = { url, loaded: { data, at: Date.now() } };
        keep(url, latest.value.loaded);
      } catch (error) {
        if (leave.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        const before = latest.peek();
        latest.value = { url, loaded: { ...(before.url === url ? before.loaded : ((kept.get(url) as Loaded<T> | undefined) ?? nothing)), problem: error } };
        if (error.code === "unreachable") return; // the next attempt begins when it is back
      }
      if (every > 0) timer = setTimeout(load, every);
    };
    void load();
    return () => {
      leave.abort();
      clearTimeout(timer);
    };
  });
  const { value } = latest;
  const loaded = value.url === url ? value.loaded : ((kept.get(url) as Loaded<T> | undefined) ?? nothing);
  return { ...loaded, again: () => (wanted.value = { ...wanted.peek(), turn: wanted.peek().turn + 1 }) };
}
