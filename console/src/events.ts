// Streams of events: of a job (GET /v1/jobs/{id}/events), and of lists (live.ts). A tab has at most one: browsers allow six connections to one
// server. It is closed while the tab is hidden.
import { answered, callUrl, Problem, problemOf, unreachable } from "./api.ts";
import { parseJson, type Json } from "./json.ts";

export interface ServerEvent {
  name: string;
  data: string;
}

/** The longest event that is read, in characters: a job of 10,000 steps has 4 million. */
export const maxEvent = 64 << 20;

/** Splits the text of a stream into events, however it is cut into pieces. Comments are skipped. */
export class EventReader {
  #rest: string[] = []; // pieces of a line that is not complete: joining them each time would read a large event often
  #restLength = 0;
  #name = "";
  #data: string[] = [];

  /** Takes a piece, and returns the events that are complete. */
  take(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    this.#rest.push(piece);
    this.#restLength += piece.length;
    if (this.#restLength > maxEvent) throw new Problem(0, "tooLarge", "An event of the stream is too large to be shown.");
    if (!piece.includes("\n")) return events;
    const lines = this.#rest.join("").split("\n");
    this.#rest = [lines.pop()!];
    this.#restLength = this.#rest[0]!.length;
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.#data.length > 0) events.push({ name: this.#name || "message", data: this.#data.join("\n") });
        this.#name = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (field === "event") this.#name = value;
      else if (field === "data") this.#data.push(value);
    }
    return events;
  }
}

/** The server sends a comment every 15 s. A stream that is silent for longer is dead. */
export const silence = 30_000;

let current: AbortController | undefined;

/**
 * Reads one stream until it ends, and passes each event on. It replaces the stream that the tab had. It returns true if
 * the server has ended the stream after its last event, and false if it should be opened again. It throws a Problem if
 * the server refuses it.
 */
export function readEvents(job: string, stop: AbortSignal, take: (name: string, data: Json) => void): Promise<boolean> {
  return readStream(callUrl(["v1", "jobs", job, "events"]), stop, take);
}

/** readEvents for the stream of any URL. That of a list has no last event. */
export async function readStream(url: string, stop: AbortSignal, take: (name: string, data: Json) => void): Promise<boolean> {
  current?.abort();
  const own = new AbortController();
  current = own;
  const abort = () => own.abort();
  stop.addEventListener("abort", abort);
  if (stop.aborted) own.abort();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(abort, silence);
  };
  try {
    alive();
    const response = await fetch(url, { signal: own.signal, headers: { Accept: "text/event-stream" } });
    answered(response);
    if (!response.ok || !response.body) throw problemOf(response.status, await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (let last = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return last === "rest";
      alive();
      for (const event of events.take(value)) {
        last = event.name;
        take(event.name, parseJson(event.data));
      }
    }
  } catch (error) {
    if (stop.aborted) return true;
    if (error instanceof Problem) throw error;
    if (!own.signal.aborted) unreachable();
    return false; // a broken connection, or silence
  } finally {
    clearTimeout(timer);
    stop.removeEventListener("abort", abort);
    if (current === own) current = undefined;
    own.abort();
  }
}

