// One call to a server, and what its answer means.

import { type CertificateFiles, type Fetch, fetchWith } from "./certificates.ts";
import { PerdureError, refusal } from "./errors.ts";
import { parse } from "./json.ts";

export const answerMs = 30_000; // how long a server may take beyond what it was asked to wait
const maxRetryAfterMs = 60_000;
const silentMs = 50_000; // a server sends at least a comment every 15 s
const maxEvent = 128 << 20; // characters; servers send less

export interface Ask {
  query?: URLSearchParams;
  body?: string;
  contentType?: string;
  headers?: Record<string, string>;
  /** Of the whole call. */
  timeoutMs?: number;
  /** The answer is not JSON but bytes, and no more than these. */
  size?: number;
  /** Ends the call: its reason is thrown. */
  signal?: AbortSignal | undefined;
}

/** One of the events of a stream. */
export interface ServerEvent {
  event: string;
  data: unknown;
}

export class Transport {
  readonly #base: string;
  readonly #headers: Record<string, string>;
  readonly #token: () => Promise<string | undefined>;
  readonly #fetch: Fetch;

  /** token returns the token of a call; undefined: none is sent. */
  constructor(url: string, headers: Record<string, string>, token: () => Promise<string | undefined> = async () => undefined,
    files: CertificateFiles = {}) {
    const u = URL.canParse(url) ? new URL(url) : undefined;
    if (!u || !/^https?:$/.test(u.protocol) || u.search || u.hash || u.username || u.password) {
      // The URL is not repeated: it may hold a password.
      throw new TypeError("not the URL of a server: write http://HOST:PORT, without user, password and query");
    }
    this.#base = u.href.replace(/\/+$/, "");
    this.#headers = headers;
    this.#token = token;
    this.#fetch = fetchWith(u.href, files);
  }

  async #sent(): Promise<Record<string, string>> {
    const token = await this.#token();
    return token === undefined ? this.#headers : { Authorization: `Bearer ${token}`, ...this.#headers };
  }

  /** Sends a request and reads its answer. PerdureError for all but success. */
  async ask(method: string, path: string, ask: Ask = {}): Promise<{ status: number; value: unknown }> {
    const target = this.#base + path + (ask.query?.size ? `?${ask.query}` : "");
    const limit = ask.timeoutMs ?? answerMs;
    const sent = await this.#sent();
    const ended = new AbortController();
    const stop = (): void => ended.abort(ask.signal?.reason);
    ask.signal?.throwIfAborted();
    ask.signal?.addEventListener("abort", stop, { once: true });
    const timer = setTimeout(() => ended.abort(), limit);
    try {
      const response = await this.#fetch(target, {
        method, signal: ended.signal, redirect: "manual",
        headers: { ...sent, ...ask.headers, ...(ask.body === undefined ? {} : { "Content-Type": ask.contentType ?? "application/json" }) },
        ...(ask.body === undefined ? {} : { body: ask.body }),
      });
      if (ask.size !== undefined && response.ok) return { status: response.status, value: await bytesOf(response, ask.size) };
      return this.#read(response, await response.text(), ask.contentType === "application/yaml");
    } catch (e) {
      throw this.#unreachable(e, ask.signal, ended.signal, limit);
    } finally {
      clearTimeout(timer);
      ask.signal?.removeEventListener("abort", stop);
    }
  }

  /** Reads a stream of server-sent events to its end. A stream that breaks, or that is silent for too long, throws a
   * PerdureError with the code "unavailable"; so does one that ends without an event `rest`. */
  async *events(path: string, signal?: AbortSignal): AsyncGenerator<ServerEvent, void, undefined> {
    const sent = await this.#sent();
    const ended = new AbortController();
    const stop = (): void => ended.abort(signal?.reason);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", stop, { once: true });
    const silent = setTimeout(() => ended.abort(), silentMs);
    try {
      const response = await this.#fetch(this.#base + path, { headers: { ...sent, Accept: "text/event-stream" }, signal: ended.signal, redirect: "manual" });
      if (!response.ok || !response.body || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
        this.#read(response, await response.text(), false);
        throw new PerdureError("unavailable", `${this.#base} answered ${path} with something that is no stream of events`);
      }
      for await (const { event, data } of readEvents(response.body, () => silent.refresh())) {
        const value = parse(data);
        if (event === "problem" && isObject(value)) throw refusal(value, response.status, 0);
        yield { event, data: value };
        if (event === "rest") return;
      }
      throw new Error("the stream ended early");
    } catch (e) {
      throw this.#unreachable(e, signal, ended.signal, silentMs);
    } finally {
      clearTimeout(silent);
      signal?.removeEventListener("abort", stop);
      ended.abort(); // the caller may have left early
    }
  }

  #unreachable(e: unknown, caller: AbortSignal | undefined, ended: AbortSignal, limit: number): unknown {
    if (e instanceof PerdureError) return e;
    if (caller?.aborted) return caller.reason;
    if (ended.aborted) return new PerdureError("unavailable", `${this.#base} did not answer within ${limit} ms`, { cause: e });
    return new PerdureError("unavailable", `${this.#base} cannot be reached: ${causeOf(e)}`, { cause: e, hint: hintFor(this.#base, causeOf(e)) });
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

/** The bytes of an answer, of which there may be so many. */
async function bytesOf(response: Response, most: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.length;
    if (size > most) throw new Error(`an answer of more than ${most} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

export function isObject(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** The list of that name in an answer. */
export function listIn<A extends object, N extends keyof A & string>(answer: A, name: N, count?: number): NonNullable<A[N]> {
  const items: unknown = isObject(answer) ? answer[name] : undefined;
  if (!Array.isArray(items) || (count !== undefined && items.length !== count)) {
    throw new PerdureError("unavailable", `the answer has no ${name} that fit the question`);
  }
  return items as NonNullable<A[N]>;
}

/** Takes a stream apart into its events. heard is called with all that arrives, comments included. */
async function* readEvents(body: AsyncIterable<Uint8Array>, heard: () => void): AsyncGenerator<{ event: string; data: string }> {
  const decoder = new TextDecoder();
  let line = ""; // as much of it as has arrived
  let event = "";
  let data: string[] = [];
  let size = 0;
  for await (const chunk of body) {
    heard();
    const text = decoder.decode(chunk, { stream: true });
    size += text.length;
    if (size > maxEvent) throw new PerdureError("tooLarge", `an event is over ${maxEvent} characters`);
    const lines = text.split("\n");
    lines[0] = line + lines[0];
    line = lines.pop()!;
    for (const one of lines) {
      const [, name, value] = /^([^:]*):? ?(.*?)\r?$/s.exec(one)!;
      if (one === "" || one === "\r") {
        if (event) yield { event, data: data.join("\n") };
        event = "";
        data = [];
        size = line.length;
      } else if (name === "event") {
        event = value!;
      } else if (name === "data") {
        data.push(value!);
      }
    }
  }
}

function hintFor(url: string, cause: string): string {
  // The alert of TLS may be lost when the server closes the connection.
  if (/alert/.test(cause) || (url.startsWith("https:") && /ECONNRESET|EPIPE|socket hang up/.test(cause))) return "does the server require client certificates? clientCert and clientKey";
  if (/certificate/.test(cause)) return "is the server's certificate from an authority of your own? name it: serverCA";
  return "is a server running there? perdure serve starts one";
}

function causeOf(e: unknown): string {
  const cause = e instanceof Error && e.cause instanceof Error ? e.cause : e;
  if (cause instanceof Error && "reason" in cause) return String(cause.reason); // OpenSSL's, whose message has several lines
  return cause instanceof Error ? cause.message || String((cause as NodeJS.ErrnoException).code ?? cause.name) : String(cause);
}

function retryAfter(response: Response): number {
  const text = response.headers.get("Retry-After")?.trim() ?? "";
  return /^\d+$/.test(text) ? Math.min(Number(text) * 1000, maxRetryAfterMs) : 0;
}
