// A list that grows, loaded page by page: the runs of a job, its history. A page that is final is not loaded again.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, callUrl, Problem, returned } from "./api.ts";
import { visible } from "./load.ts";
import { queryText } from "./router.ts";
import type { Entry, Job, RunRecord } from "./types.ts";

/** The time between two loads while the job moves, in milliseconds. */
const every = 2_000;

interface Page<T> {
  items: T[];
  nextCursor?: string;
}

export interface Paged<T> {
  items: T[];
  /** There are more items. */
  more: boolean;
  loaded: boolean;
  problem?: Problem;
}

interface Way<T> {
  /** Items of a page. */
  limit: number;
  /** The list is loaded up to this number of items. */
  most: number;
  /** Load only the first page, and further ones when next is called. */
  stepwise?: boolean;
  /** Whether a page that others follow can still change. */
  changes?: (items: T[]) => boolean;
}

/** Loads the list at a path, and again when change has another value, at most every two seconds. */
function usePaged<T>(path: string[], change: unknown, { limit, most, stepwise = false, changes = () => false }: Way<T>): Paged<T> & { again: () => void; next: () => void } {
  const url = callUrl(path);
  const paged = useSignal<Paged<T>>({ items: [], more: false, loaded: false });
  const pages = useRef<{ url: string; pages: Page<T>[]; wanted: number }>({ url, pages: [], wanted: 1 });
  const turn = useSignal(0);
  const loadedAt = useRef(0);
  const ask = useRef(() => {});
  const shown = visible.value, back = returned.value;
  useEffect(() => {
    if (!shown) return;
    const leave = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let loading = false, changed = false;
    if (pages.current.url !== url) {
      pages.current = { url, pages: [], wanted: 1 };
      paged.value = { items: [], more: false, loaded: false };
    }
    const load = async () => {
      timer = undefined;
      loadedAt.current = Date.now();
      loading = true;
      const { pages: known, wanted } = pages.current;
      const open = known.findIndex((page) => page.nextCursor === undefined || changes(page.items));
      const read = open < 0 ? known.slice() : known.slice(0, open);
      try {
        for (let cursor = read.at(-1)?.nextCursor; ; ) {
          if (read.length > 0 && (!cursor || read.length * limit >= most || (stepwise && read.length >= wanted))) break;
          const page = await call<Page<T>>(url + queryText({ limit: String(limit), cursor }), { signal: leave.signal });
          read.push(page);
          cursor = page.nextCursor;
        }
        pages.current.pages = read;
        paged.value = { items: read.flatMap((page) => page.items), more: read.at(-1)?.nextCursor !== undefined, loaded: true };
      } catch (error) {
        if (leave.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        paged.value = { ...paged.peek(), problem: error };
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
  }, [url, stepwise, turn.value, shown, back]);
  useEffect(() => ask.current(), [change]);
  const again = () => {
    loadedAt.current = 0;
    turn.value++;
  };
  return {
    ...paged.value,
    again,
    next: () => {
      pages.current.wanted = pages.current.pages.length + 1;
      again();
    },
  };
}

/** Of a job with more runs than this, the first are shown. */
export const mostRuns = 10_000;

/** The recorded runs of a job. */
export function useRuns(job: Job) {
  return usePaged<RunRecord>(["v1", "jobs", job.id, "runs"], job, { limit: 500, most: mostRuns, changes: (runs) => runs.some((run) => run.endedAt === undefined) });
}

/** Of a longer history, the first entries are shown. */
export const mostHistory = 2_000;

/** The history of a job: its first page and those that were asked for, or all of it. */
export function useHistory(job: Job, all: boolean) {
  return usePaged<Entry>(["v1", "jobs", job.id, "history"], job, { limit: 200, most: mostHistory, stepwise: !all });
}
