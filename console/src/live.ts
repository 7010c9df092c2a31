// A list as it changes (GET of a list with Accept: text/event-stream). The rows that are shown stay where they are:
// changes replace rows in place, rows that no longer match stay and are marked, and newer rows are only counted, until
// the user asks for them.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, Problem, problemOf, reach, returned } from "./api.ts";
import { readStream } from "./events.ts";
import type { Json } from "./json.ts";
import { visible } from "./load.ts";

/** The page of a list, as far as it is followed. */
export interface ListPage<T> {
  items: T[];
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface LiveList<T, P extends ListPage<T>> {
  /** The page whose rows are shown; undefined until it has arrived. */
  shown?: P;
  /** The latest page that the server has sent. Its rows that are not shown are counted as newer. */
  latest?: P;
  rows: readonly T[];
  /** The rows that no longer match. */
  gone: ReadonlySet<string>;
  /** How many rows match and are not shown. */
  newer: number;
  /** Whether there may be more than newer. */
  capped: boolean;
  /** Whether the stream is open, and the server reads the list. */
  live: boolean;
  /** When the list was last known, by this computer's clock; 0: never. */
  at: number;
  problem?: Problem;
}

export function emptyList<T, P extends ListPage<T>>(): LiveList<T, P> {
  return { rows: [], gone: new Set(), newer: 0, capped: false, live: false, at: 0 };
}

const idOf = (row: unknown) => String((row as { id: unknown }).id);

/** Returns a list after an event. A page replaces the rows if none are shown, or if the user has asked for it. */
export function applyEvent<T, P extends ListPage<T>>(list: LiveList<T, P>, name: string, data: Json, replace: boolean): LiveList<T, P> {
  const { problem: _, ...before } = list;
  switch (name) {
    case "page": {
      const page = data as unknown as P;
      if (replace || list.rows.length === 0) {
        return { ...before, shown: page, latest: page, rows: page.items, gone: new Set(), newer: 0, capped: false, live: true };
      }
      const fresh = new Map(page.items.map((row) => [idOf(row), row]));
      const gone = new Set(list.gone);
      // Rows that come before the end of the page, and are not on it, no longer match.
      const end = page.nextCursor === undefined ? undefined : page.items.at(-1);
      const last = end === undefined ? list.rows.length : list.rows.findIndex((row) => idOf(row) === idOf(end));
      list.rows.forEach((row, i) => {
        if (fresh.has(idOf(row))) gone.delete(idOf(row));
        else if (i < last) gone.add(idOf(row));
      });
      const known = new Set(list.rows.map(idOf));
      const newer = page.items.filter((row) => !known.has(idOf(row))).length;
      return { ...before, latest: page, rows: list.rows.map((row) => fresh.get(idOf(row)) ?? row), gone, newer, capped: newer === page.items.length, live: true };
    }
    case "changed": {
      const fresh = new Map((data as unknown as { items: T[] }).items.map((row) => [idOf(row), row]));
      const gone = new Set(list.gone);
      for (const id of fresh.keys()) gone.delete(id);
      return { ...list, rows: list.rows.map((row) => fresh.get(idOf(row)) ?? row), gone };
    }
    case "gone": {
      const left = (data as unknown as { ids: unknown[] }).ids.map(String);
      const known = new Set(list.rows.map(idOf));
      return { ...list, gone: new Set([...list.gone, ...left.filter((id) => known.has(id))]) };
    }
    case "newer": {
      const { n, capped } = data as unknown as { n: number; capped?: boolean };
      const known = new Set(list.rows.map(idOf));
      const pending = (list.latest?.items ?? []).filter((row) => !known.has(idOf(row))).length;
      return { ...list, newer: n + pending, capped: capped === true || (pending > 0 && pending === list.latest?.items.length) };
    }
    case "problem":
      return { ...before, live: false, problem: problemOf(Number((data as { status?: Json }).status) || 0, JSON.stringify(data)) };
  }
  return list; // of a newer server
}

const firstPause = 1000;
const longestPause = 15_000;

/** Follows a list while the tab is visible. again replaces the rows by the first page as it is then. */
export function useLiveList<T, P extends ListPage<T>>(url: string): LiveList<T, P> & { again: () => void } {
  const list = useSignal<LiveList<T, P>>(emptyList());
  const turn = useSignal(0);
  const asked = useSignal(false);
  const shown = visible.value;
  const times = returned.value;
  useEffect(() => {
    if (!shown) return;
    const stop = new AbortController();
    let replace = asked.peek();
    asked.value = false;
    let pause = firstPause;
    const take = (name: string, data: Json) => {
      pause = firstPause;
      list.value = { ...applyEvent(list.peek(), name, data, replace), at: Date.now() };
      if (name === "page") replace = false;
    };
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          await readStream(url, stop.signal, take);
          if (stop.signal.aborted) return;
          list.value = { ...list.peek(), live: false };
          if (reach.peek().nextAttemptAt) return; // begins again when the server is back
        } catch (error) {
          if (stop.signal.aborted) return;
          if (!(error instanceof Problem)) throw error;
          list.value = { ...list.peek(), live: false, problem: error };
          if (error.code === "tooManyRequests") await once(); // the node has no stream left: the list is loaded instead
        }
        await wait(pause, stop.signal);
        pause = Math.min(2 * pause, longestPause);
      }
    };
    const once = async () => {
      try {
        take("page", (await call<P>(url, { signal: stop.signal })) as unknown as Json);
        list.value = { ...list.peek(), live: false };
        pause = longestPause;
      } catch (error) {
        if (!stop.signal.aborted && !(error instanceof Problem)) throw error;
      }
    };
    void run();
    return () => {
      stop.abort();
      list.value = { ...list.peek(), live: false };
    };
  }, [url, shown, times, turn.value]);
  return {
    ...list.value,
    again: () => {
      asked.value = true;
      turn.value++;
    },
  };
}

function wait(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
