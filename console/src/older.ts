// The further pages of a list whose first page is loaded again and again: they are loaded when the user asks for them.
import { useSignal } from "@preact/signals";
import { call, Problem } from "./api.ts";

interface Page<T> {
  items: T[];
  nextCursor?: string;
}

export interface Older<T> {
  items: T[];
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
export function useOlder<T>(first: Page<T> | undefined, url: (cursor: string) => string): Older<T> {
  const items = useSignal<T[]>([]);
  const latest = useSignal<Page<T> | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const loading = useSignal(false);
  const nextCursor = (latest.value ?? first)?.nextCursor;
  const more = async () => {
    problem.value = undefined;
    loading.value = true;
    try {
      const page = await call<Page<T>>(url(nextCursor!));
      items.value = [...items.peek(), ...page.items];
      latest.value = page;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      loading.value = false;
    }
  };
  const forget = () => {
    items.value = [];
    latest.value = undefined;
  };
  return { items: items.value, nextCursor, loading: loading.value, problem: problem.value, more, forget };
}
