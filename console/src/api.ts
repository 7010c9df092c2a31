// Calls of the REST API, which is beside the console. A call that is not answered in time, or not at all, makes the
// server count as unreachable until it answers again (server.ts shows that).
import { signal } from "@preact/signals";
import { parseJson, type Json } from "./json.ts";
import { observeServerTime } from "./time.ts";

const base = new URL("../", new URL("./", document.baseURI));

/** How long a call may take. The server gives its store ten seconds. */
export const callTimeout = 15_000;

/** A fault of a request, with the place in its body. */
export interface Fault {
  pointer: string;
  message: string;
  hint?: string;
  line?: number;
  column?: number;
}

/** A refusal of the server (RFC 9457), or a server that cannot be reached (code "unreachable"). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly hint = "",
    readonly faults: Fault[] = [],
    /** After how many seconds a call may be repeated (Retry-After); 0: the server does not say. */
    readonly retryAfter = 0,
  ) {
    super(detail);
  }
}

/** The URL of a call. Each part of the path is encoded. */
export function callUrl(parts: readonly string[], query = ""): string {
  return new URL(parts.map(encodeURIComponent).join("/") + query, base).href;
}

/** The address of the API, for commands that users copy. */
export const serverAddress = base.href.replace(/\/$/, "");

export interface Reach {
  /** When the server last answered. */
  answeredAt: number;
  /** When the next attempt is due; undefined while the server can be reached. */
  nextAttemptAt?: number;
}

/** Whether the server can be reached. */
export const reach = signal<Reach>({ answeredAt: Date.now() });

/** Whether the server asks for a login: there is no session, or it has ended. Pages load nothing until then. */
export const loginNeeded = signal(false);

/** Whether the server has an OpenID Connect provider for logins. */
export const loginAtProvider = signal(false);

/** Counts how often the server came back, or the user logged in. Every page then loads its data again. */
export const returned = signal(0);

const firstPause = 1000;
const longestPause = 15_000;
let probing = false;

export function answered(response: Response): void {
  observeServerTime(response.headers.get("Date"));
  if (response.status === 401) loginAtProvider.value = response.headers.get("Perdure-Login") === "oidc";
  if (!probing) reach.value = { answeredAt: Date.now() };
}

/** Records that the server did not answer, and tries until it does. */
export function unreachable(): void {
  if (probing) return;
  probing = true;
  void (async () => {
    for (let pause = firstPause; ; pause = Math.min(2 * pause, longestPause)) {
      reach.value = { answeredAt: reach.value.answeredAt, nextAttemptAt: Date.now() + pause };
      await new Promise((wake) => {
        const timer = setTimeout(wake, pause);
        attemptNow = () => {
          clearTimeout(timer);
          wake(undefined);
        };
      });
      try {
        const response = await fetch(callUrl(["healthz"]), { signal: AbortSignal.timeout(callTimeout), cache: "no-store" });
        if (!response.ok) continue;
        probing = false;
        answered(response);
        returned.value++;
        return;
      } catch {
        // the next attempt follows
      }
    }
  })();
}

/** Ends the pause before the next attempt. */
export let attemptNow: () => void = () => undefined;

/** Calls the API, and reads a JSON answer. Throws a Problem. */
export async function call<T>(url: string, init: RequestInit = {}): Promise<T> {
  return (await callTagged<T>(url, undefined, init))!.value;
}

/** call for an answer with an ETag. It returns undefined if the answer is still the one that had the tag. */
export async function callTagged<T>(url: string, tag: string | undefined, init: RequestInit): Promise<{ value: T; tag?: string } | undefined> {
  if (tag) init = { ...init, headers: { "If-None-Match": tag } };
  const timeout = AbortSignal.timeout(callTimeout);
  let response: Response, text: string;
  try {
    response = await fetch(url, { ...init, signal: init.signal ? AbortSignal.any([init.signal, timeout]) : timeout });
    text = await response.text();
  } catch (error) {
    if (init.signal?.aborted) throw error; // the page has left
    unreachable();
    throw new Problem(0, "unreachable", timeout.aborted ? `The server did not answer within ${callTimeout / 1000} s.` : "The server cannot be reached.");
  }
  answered(response);
  if (tag && response.status === 304) return undefined;
  if (!response.ok) throw problemOf(response.status, text, response.headers.get("Retry-After"));
  if (response.status === 204) return { value: undefined as T };
  try {
    const next = response.headers.get("ETag");
    return { value: parseJson(text) as T, ...(next && { tag: next }) };
  } catch {
    throw new Problem(response.status, "malformed", "The server sent an answer that is not JSON.", "Does a proxy in front of it answer in its place?");
  }
}

/** Reads a problem. An answer without one comes from a proxy. */
export function problemOf(status: number, text: string, retryAfter: string | null = null): Problem {
  try {
    const read = parseJson(text) as { [name: string]: Json };
    if (typeof read.code === "string") {
      if (read.code === "unauthenticated") loginNeeded.value = true;
      const say = (value: Json | undefined) => (typeof value === "string" ? value : "");
      return new Problem(status, read.code, say(read.detail) || say(read.title), say(read.hint), Array.isArray(read.errors) ? (read.errors as unknown as Fault[]) : [], Number(retryAfter) || 0);
    }
  } catch {
    // not JSON
  }
  return new Problem(status, `http${status}`, `The server, or a proxy in front of it, answered with status ${status}.`);
}
