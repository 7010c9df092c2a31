// The further pages of a list: they are loaded when the user asks for them.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { call, Problem } from "./api.ts";

interface Page<T> {
  items: T[];
  nextCursor?: string;
}

export interface Older<T, P extends Page<T>> {
  items: T[];
  /** The last page that is shown: the first one of the list, if there is no other. */
  last: P | undefined;
  /** The cursor of the next page; undefined if there is none. */
  nextCursor: string | undefined;
  loading: boolean;
  problem: Problem | undefined;
  /** Loads the next page. */
  more: () => Promise<void>;
  /** Forgets the pages. */
  forget: () => void;
}

/** The pages after the first one. url returns the address of the page at a cursor. */
export function useOlder<T, P extends Page<T>>(first: P | undefined, url: (cursor: string) => string): Older<T, P> {
  const pages = useSignal<P[]>([]);
  const problem = useSignal<Problem | undefined>(undefined);
  const loading = useSignal(false);
  const turn = useRef({}); // another one after the pages were forgotten: a page that arrives then belongs to another list
  const last = pages.value.at(-1) ?? first;
  const nextCursor = last?.nextCursor;
  const more = async () => {
    if (loading.peek() || nextCursor === undefined) return;
    const own = turn.current;
    problem.value = undefined;
    loading.value = true;
    try {
      const page = await call<P>(url(nextCursor));
      if (own === turn.current) pages.value = [...pages.peek(), page];
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (own === turn.current) problem.value = error;
    } finally {
      if (own === turn.current) loading.value = false;
    }
  };
  const forget = () => {
    turn.current = {};
    pages.value = [];
    problem.value = undefined;
    loading.value = false;
  };
  return { items: pages.value.flatMap((page) => page.items), last, nextCursor, loading: loading.value, problem: problem.value, more, forget };
}
