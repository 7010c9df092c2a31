// The recorded runs of a job, loaded page by page. Pages on which every run has ended are final, and not loaded again.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, callUrl, Problem, returned } from "./api.ts";
import { visible } from "./load.ts";
import type { PageRunRecord, RunRecord } from "./types.ts";

const runsPage = 500;
/** Of a job with more runs than this, the first are shown. */
export const mostRuns = 10_000;
/** The time between two loads while the job moves, in milliseconds. */
const every = 2_000;

export interface Recorded {
  runs: RunRecord[];
  /** There are more runs than mostRuns. */
  more: boolean;
  loaded: boolean;
  problem?: Problem;
}

/** Loads the runs, and again when change has another value, at most every two seconds. */
export function useRuns(id: string, change: unknown): Recorded & { again: () => void } {
  const recorded = useSignal<Recorded>({ runs: [], more: false, loaded: false });
  const pages = useRef<{ id: string; pages: { items: RunRecord[]; next: string | undefined }[] }>({ id, pages: [] });
  const turn = useSignal(0);
  const loadedAt = useRef(0);
  const ask = useRef(() => {});
  const shown = visible.value;
  const back = returned.value;
  useEffect(() => {
    if (!shown) return;
    const leave = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let loading = false, changed = false;
    if (pages.current.id !== id) {
      pages.current = { id, pages: [] };
      recorded.value = { runs: [], more: false, loaded: false };
    }
    const load = async () => {
      timer = undefined;
      loadedAt.current = Date.now();
      loading = true;
      const known = pages.current.pages;
      let at = known.findIndex((page) => page.next === undefined || page.items.some((run) => run.endedAt === undefined));
      if (at < 0) at = known.length;
      const read = known.slice(0, at);
      try {
        for (let cursor = read.at(-1)?.next; ; ) {
          const page = await call<PageRunRecord>(callUrl(["v1", "jobs", id, "runs"], `?limit=${runsPage}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`), { signal: leave.signal });
          read.push({ items: page.items, next: page.nextCursor });
          cursor = page.nextCursor;
          if (!cursor || read.length * runsPage >= mostRuns) break;
        }
        pages.current = { id, pages: read };
        recorded.value = { runs: read.flatMap((page) => page.items), more: read.at(-1)?.next !== undefined, loaded: true };
      } catch (error) {
        if (leave.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        recorded.value = { ...recorded.peek(), problem: error };
      }
      loading = false;
      if (changed) schedule();
    };
    const schedule = () => {
      changed = loading;
      if (!loading) timer ??= setTimeout(load, Math.max(0, loadedAt.current + every - Date.now()));
    };
    ask.current = schedule;
    schedule();
    return () => {
      ask.current = () => {};
      leave.abort();
      clearTimeout(timer);
    };
  }, [id, turn.value, shown, back]);
  useEffect(() => ask.current(), [change]);
  return {
    ...recorded.value,
    again: () => {
      loadedAt.current = 0;
      turn.value++;
    },
  };
}
