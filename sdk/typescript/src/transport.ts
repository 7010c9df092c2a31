// One call to a server, and what its answer means.

import { PerdureError, refusal } from "./errors.ts";
import { parse } from "./json.ts";

export const answerMs = 30_000; // how long a server may take beyond what it was asked to wait
const maxRetryAfterMs = 60_000;

export interface Ask {
  query?: URLSearchParams;
  body?: string;
  contentType?: string;
  /** Of the whole call. */
  timeoutMs?: number;
  /** Ends the call: its reason is thrown. */
  signal?: AbortSignal;
}

export class Transport {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, headers: Record<string, string>) {
    const u = URL.canParse(url) ? new URL(url) : undefined;
    if (!u || !/^https?:$/.test(u.protocol) || u.search || u.hash || u.username || u.password) {
      // The URL is not repeated: it may hold a password.
      throw new TypeError("not the URL of a server: write http://HOST:PORT, without user, password and query");
    }
    this.#base = u.href.replace(/\/+$/, "");
    this.#headers = headers;
  }

  /** Sends a request and reads its answer. PerdureError for all but success. */
  async ask(method: string, path: string, ask: Ask = {}): Promise<{ status: number; value: unknown }> {
    const target = this.#base + path + (ask.query?.size ? `?${ask.query}` : "");
    const limit = ask.timeoutMs ?? answerMs;
    const ended = new AbortController();
    const stop = (): void => ended.abort(ask.signal?.reason);
    ask.signal?.throwIfAborted();
    ask.signal?.addEventListener("abort", stop, { once: true });
    const timer = setTimeout(() => ended.abort(), limit);
    try {
      const response = await fetch(target, {
        method, signal: ended.signal, redirect: "manual",
        headers: ask.body === undefined ? this.#headers
          : { ...this.#headers, "Content-Type": ask.contentType ?? "application/json" },
        ...(ask.body === undefined ? {} : { body: ask.body }),
      });
      return this.#read(response, await response.text(), ask.contentType === "application/yaml");
    } catch (e) {
      if (e instanceof PerdureError) throw e;
      ask.signal?.throwIfAborted();
      if (ended.signal.aborted) {
        throw new PerdureError("unavailable", `${this.#base} did not answer within ${limit} ms`, { cause: e });
      }
      throw new PerdureError("unavailable", `${this.#base} cannot be reached: ${causeOf(e)}`,
        { cause: e, hint: "is a server running there? perdure serve starts one" });
    } finally {
      clearTimeout(timer);
      ask.signal?.removeEventListener("abort", stop);
    }
  }

  #read(response: Response, text: string, sentText: boolean): { status: number; value: unknown } {
    const kind = (response.headers.get("Content-Type") ?? "").split(";")[0]!.trim();
    let value: unknown;
    let json = kind === "application/json" || kind.endsWith("+json");
    if (json) {
      try {
        value = parse(text);
      } catch {
        json = false;
      }
    }
    if (response.ok && (json || response.status === 204)) return { status: response.status, value };
    const retryAfterMs = retryAfter(response);
    if (!response.ok && isObject(value) && value.code) throw refusal(value, response.status, retryAfterMs, sentText);
    // No Perdure server gives such an answer: something stands between, or listens in its place.
    const to = response.headers.get("Location");
    throw new PerdureError("unavailable",
      `${this.#base} answered ${response.status} ${response.statusText}, which is not Perdure's`,
      { status: response.status, retryAfterMs, hint: to ? `it points to ${to}: use that` : "is this the server's URL?" });
  }
}

export function isObject(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** The list of that name in an answer. */
export function listIn(answer: unknown, name: string, count?: number): unknown[] {
  const items = isObject(answer) ? answer[name] : undefined;
  if (!Array.isArray(items) || (count !== undefined && items.length !== count)) {
    throw new PerdureError("unavailable", `the answer has no ${name} that fit the question`);
  }
  return items;
}

function causeOf(e: unknown): string {
  const cause = e instanceof Error && e.cause instanceof Error ? e.cause : e;
  return cause instanceof Error ? cause.message || String((cause as NodeJS.ErrnoException).code ?? cause.name) : String(cause);
}

function retryAfter(response: Response): number {
  const text = response.headers.get("Retry-After")?.trim() ?? "";
  return /^\d+$/.test(text) ? Math.min(Number(text) * 1000, maxRetryAfterMs) : 0;
}
