// A list that the server gives out in pages.

const pageSize = 500; // the most that a server answers at once

export interface Page<T> {
  items: T[];
  /** Where the next page begins; not there on the last page. */
  nextCursor?: string;
}

export interface PageOptions {
  /** 1 to 500; 50 if nothing is said. */
  limit?: number | undefined;
  /** nextCursor of the page before. */
  cursor?: string | undefined;
}

/** A list. Nothing is asked before it is read: by `for await`, which asks for more as it goes on; by `all`; or by `page`, for
 * pages of your own. Each reads from the beginning. */
export class Listing<T> implements AsyncIterable<T> {
  readonly #ask: (page: PageOptions) => Promise<Page<T>>;

  constructor(ask: (page: PageOptions) => Promise<Page<T>>) {
    this.#ask = ask;
  }

  /** One page. `nextCursor` of its answer is the `cursor` of the next one. */
  page(options: PageOptions = {}): Promise<Page<T>> {
    return this.#ask(options);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (let cursor: string | undefined; ;) {
      const page = await this.#ask({ limit: pageSize, cursor });
      yield* page.items;
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }

  /** All of it. Throws a RangeError if there are more than `max` (10,000 if nothing is said). */
  async all(max = 10_000): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) {
      if (items.length >= max) throw new RangeError(`there are more than ${max}: narrow the filter, pass a larger max, or use for await`);
      items.push(item);
    }
    return items;
  }
}
