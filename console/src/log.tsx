// The log of a run in the panel of its step: the end first, earlier lines on request, followed while the run writes. The
// page reads again from the offset at which it has stopped, each second or faster, and so needs no stream of its own: a
// tab has one stream, that of the job. Text of the log is only ever a text node.
import { signal, useSignal } from "@preact/signals";
import { Component } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { answered, callTimeout, callUrl, Problem, problemOf, returned, unreachable } from "./api.ts";
import { keptChoice } from "./choice.ts";
import { EventReader } from "./events.ts";
import { parseJson } from "./json.ts";
import { visible } from "./load.ts";
import { blockPieces, bytesOf, leftOutText, LogWindow, type Block, type Part } from "./logtext.ts";
import { save } from "./picturemenu.tsx";
import { place, setQuery } from "./place.ts";
import { queryText } from "./router.ts";
import type { Job, Step } from "./types.ts";
import { Icon, plural, ProblemNote, sizeText } from "./widgets.tsx";

const streams = ["stdout", "stderr"] as const;
type Stream = (typeof streams)[number];

/** How much of the end is loaded first, and how much of what precedes it at a time, in bytes. */
const firstBytes = 256 << 10;
/** A page that is further behind than this begins at the end again, in bytes. */
const catchUpBytes = 1 << 20;
/** A log keeps so many of its first bytes (docs/rest.md). */
const keptAtStart = 8 << 20;
/** Pauses between two reads, in milliseconds: after new bytes, after none, and where no log is expected. */
const soon = 400, usual = 1000, seldom = 5000;
const pauseAfterProblem = 5000;
/** So long after the end of a run its holder may add to the log, in milliseconds. */
const lastBytesWait = 6000;
/** Each how many reads the size of the other stream is read. */
const otherEvery = 5;
const mostRuns = 100;

const { value: wrap, next: nextWrap } = keptChoice<"wrap" | "scroll">("perdure.logLines", ["wrap", "scroll"]);

interface Answer {
  /** The end of the log. */
  size: number;
  ended: boolean;
}

/** Reads a log as it is stored now. take gets the parts in their order, and returns false when it needs no more. */
async function readParts(url: string, stop: AbortSignal, take: (part: Part) => boolean): Promise<Answer> {
  const own = new AbortController();
  const abort = () => own.abort();
  stop.addEventListener("abort", abort);
  if (stop.aborted) own.abort();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(abort, callTimeout);
  };
  const answer: Answer = { size: 0, ended: false };
  try {
    alive();
    const response = await fetch(url, { signal: own.signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
    answered(response);
    if (!response.ok || !response.body) throw problemOf(response.status, await response.text(), response.headers.get("Retry-After"));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new TypeError("the answer ends too early");
      alive();
      for (const event of events.take(value)) {
        if (event.name === "end") return answer;
        if (event.name !== "part") continue;
        const part = parseJson(event.data) as { offset: number; leftOut?: number; size: number; data?: string; end?: boolean };
        answer.size = part.size;
        answer.ended ||= part.end === true;
        if (!take({ offset: part.offset, leftOut: part.leftOut ?? 0, data: part.data ? bytesOf(part.data) : new Uint8Array(0) })) return answer;
      }
    }
  } catch (error) {
    if (stop.aborted || error instanceof Problem) throw error;
    unreachable();
    throw new Problem(0, "unreachable", "The server cannot be reached.");
  } finally {
    clearTimeout(timer);
    stop.removeEventListener("abort", abort);
    own.abort();
  }
}

/** A log as the page has it. */
class Followed {
  readonly window = signal(new LogWindow(0));
  readonly size = signal(0);
  readonly otherSize = signal(0);
  readonly loaded = signal(false);
  readonly ended = signal(false);
  readonly problem = signal<Problem | undefined>(undefined);
  readonly loadingEarlier = signal(false);
  /** Whether the end of the log is shown, and new lines with it. */
  readonly follows = signal(true);
  /** Whether later lines than those of the window are not shown, and not loaded. */
  readonly apart = signal(false);
  /** Counts the changes of the window. */
  readonly turn = signal(0);
  /** Counts how often reading has to begin again: it ends with the log. */
  readonly begins = signal(0);

  constructor(
    readonly url: string,
    readonly run: number,
    readonly stream: Stream,
  ) {}

  #at(query: Record<string, string>, stream = this.stream): string {
    return this.url + queryText({ run: String(this.run), stream, ...query });
  }

  /** Saves the log as it is stored. A link would not do: the status is 206, which browsers take for a part of a file. */
  async save(name: string): Promise<void> {
    try {
      const response = await fetch(this.#at({}), { cache: "no-store" });
      answered(response);
      if (!response.ok) throw problemOf(response.status, await response.text(), response.headers.get("Retry-After"));
      save(name, await response.blob());
    } catch (error) {
      this.problem.value = error instanceof Problem ? error : new Problem(0, "notSaved", "The log could not be read.", "Try it again.");
    }
  }

  /** Reads what is new. It returns how many bytes there were. */
  async #read(stop: AbortSignal): Promise<number> {
    let window = this.window.peek(), fresh = 0;
    const apart = this.apart.peek();
    const query = apart ? { offset: String(this.size.peek()) } : { offset: String(window.end), tail: String(window.end > 0 ? catchUpBytes : firstBytes) };
    const { size, ended } = await readParts(this.#at(query), stop, (part) => {
      if (apart) return true;
      if (this.window.peek() !== window || this.apart.peek()) return false; // the user has gone to another part meanwhile
      const begin = part.offset - part.leftOut;
      if (begin > window.end) {
        // The page is far behind. It goes on at the end, unless the user reads what it has.
        if (!this.follows.peek()) {
          this.apart.value = true;
          return false;
        }
        this.window.value = window = new LogWindow(begin);
      }
      fresh += part.data.length + part.leftOut;
      window.append(part);
      return true;
    });
    this.size.value = size;
    this.ended.value = ended;
    if (window.full) {
      if (this.follows.peek()) window.dropEarlier();
      else this.apart.value = true;
    }
    if (fresh > 0 || !this.loaded.peek()) this.turn.value++;
    this.loaded.value = true;
    this.problem.value = undefined;
    return fresh;
  }

  async #readOther(stop: AbortSignal): Promise<void> {
    const { size } = await readParts(this.#at({ tail: "1" }, this.stream === "stdout" ? "stderr" : "stdout"), stop, () => true);
    this.otherSize.value = size;
  }

  /** Follows the log until it has ended. expected: whether the agent of the step usually writes one. */
  async follow(stop: AbortSignal, expected: boolean): Promise<void> {
    let quietSince = Date.now();
    for (let i = 0; !stop.aborted; i++) {
      let wait = usual;
      try {
        if (i % otherEvery === 0) await this.#readOther(stop);
        const fresh = await this.#read(stop);
        if (fresh > 0 || !this.ended.peek()) quietSince = Date.now();
        if (Date.now() - quietSince > lastBytesWait) {
          if (i % otherEvery !== 0) await this.#readOther(stop);
          return;
        }
        wait = fresh > 0 ? soon : expected || this.size.peek() + this.otherSize.peek() > 0 ? usual : seldom;
      } catch (error) {
        if (stop.aborted) return;
        if (!(error instanceof Problem)) throw error;
        this.problem.value = error;
        if (error.code === "unreachable") return; // begins again when the server is back
        wait = Math.max(pauseAfterProblem, error.retryAfter * 1000);
      }
      await new Promise<void>((wake) => {
        const timer = setTimeout(wake, wait);
        stop.addEventListener("abort", () => {
          clearTimeout(timer);
          wake();
        });
      });
    }
  }

  /** Loads lines that precede those of the window. before is called right before they are added. */
  async earlier(before: () => void): Promise<void> {
    const window = this.window.peek(), { start } = window;
    if (this.loadingEarlier.peek() || start === 0) return;
    this.loadingEarlier.value = true;
    this.follows.value = false;
    const stop = new AbortController();
    try {
      let from = Math.max(0, start - firstBytes);
      let parts = await this.#partsFrom(from, start, stop.signal);
      // Where nothing is stored, the page goes back until it finds something.
      for (let step = firstBytes; (parts[0]?.leftOut ?? 0) > 0 && from > 0; step *= 2) {
        from = from > keptAtStart ? keptAtStart - firstBytes : Math.max(0, from - step);
        parts = await this.#partsFrom(from, start, stop.signal);
      }
      if (this.window.peek() !== window || window.start !== start) return; // the user has left this part
      before();
      window.prepend(from, parts);
      if (window.full) {
        window.dropLater();
        this.apart.value = true;
      }
      this.turn.value++;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem.value = error;
    } finally {
      this.loadingEarlier.value = false;
    }
  }

  async #partsFrom(from: number, until: number, stop: AbortSignal): Promise<Part[]> {
    const parts: Part[] = [];
    await readParts(this.#at({ offset: String(from) }), stop, (part) => {
      if (part.offset - part.leftOut < until) parts.push(part);
      return part.offset + part.data.length < until;
    });
    return parts;
  }

  /** Goes to the end of the log, and follows it. */
  toEnd(): void {
    if (this.apart.peek()) {
      this.window.value = new LogWindow(0);
      this.apart.value = false;
      this.begins.value++;
    }
    this.follows.value = true;
    this.turn.value++;
  }
}

/** Whether runs of a step usually have a log. */
const expectsLog = (step: Step) => step.agent === "exec" || (step.lockedBy ?? "").startsWith("host/");

export function StepLog({ job, name, step }: { job: Job; name: string; step: Step }) {
  const { query } = place.value;
  const asked = Number(query.get("run"));
  const run = Number.isInteger(asked) && asked >= 1 && asked <= step.run ? asked : step.run;
  const wide = query.get("log") === "wide";
  const chosen = useSignal<{ run: number; stream: Stream } | undefined>(undefined); // by the page: the stream that is not empty
  const stream = streams.find((one) => one === query.get("stream")) ?? (chosen.value?.run === run ? chosen.value.stream : "stdout");
  const url = callUrl(["v1", "jobs", job.id, "steps", name, "logs"]);
  const log = useRef<Followed>(undefined);
  if (log.current?.url !== url || log.current.run !== run || log.current.stream !== stream) log.current = new Followed(url, run, stream);
  const now = log.current;
  const shown = visible.value, back = returned.value;
  const expected = expectsLog(step);
  // A run that has ended may have been followed to its end before: the log is read again, once.
  const over = run < step.run || step.phase !== "running";
  useEffect(() => {
    if (!shown) return;
    const stop = new AbortController();
    void now.follow(stop.signal, expected);
    return () => stop.abort();
  }, [now, shown, back, expected, over, now.begins.value]);
  useEffect(() => {
    if (!query.get("stream") && chosen.value?.run !== run && now.loaded.value && now.stream === "stdout" && now.size.value === 0 && now.otherSize.value > 0) chosen.value = { run, stream: "stderr" };
  }, [run, now.loaded.value, now.size.value, now.otherSize.value]);
  const nothing = now.size.value + now.otherSize.value === 0;
  if (nothing && !now.problem.value && (!now.loaded.value || (!expected && run === step.run))) return null;
  const sizes = { [now.stream]: now.size.value, [now.stream === "stdout" ? "stderr" : "stdout"]: now.otherSize.value } as Record<Stream, number>;
  const first = Math.max(1, step.run - mostRuns + 1);
  return (
    <section class={`log${wide ? " wide" : ""}`} aria-labelledby="log-title">
      <div class="log-tools">
        <h3 id="log-title">Log</h3>
        {step.run > 1 && (
          <select aria-label="Run" value={String(run)} onChange={(event) => setQuery({ run: event.currentTarget.value === String(step.run) ? undefined : event.currentTarget.value })}>
            {Array.from({ length: step.run - first + 1 }, (_, i) => step.run - i).map((one) => (
              <option key={one} value={String(one)}>
                run {one}
                {one === step.run ? ", the latest" : ""}
              </option>
            ))}
            {run < first && <option value={String(run)}>run {run}</option>}
          </select>
        )}
        <span class="group" role="group" aria-label="Stream">
          {streams.map((one) => (
            <button type="button" key={one} aria-pressed={one === stream} onClick={() => setQuery({ stream: one })}>
              {one} <span class="small">{sizeText(sizes[one])}</span>
            </button>
          ))}
        </span>
        <span class="end">
          <button type="button" class="bare" aria-pressed={wrap.value === "wrap"} title="Wrap long lines" aria-label="Wrap long lines" onClick={nextWrap}>
            <Icon name="wrap" />
          </button>
          <button type="button" class="bare" title="Save the log" aria-label="Save the log" onClick={() => void now.save(`${job.key ?? job.id}-${name}-${run}-${stream}.log`)}>
            <Icon name="download" />
          </button>
          <button type="button" class="bare" aria-pressed={wide} title="As wide as the page" aria-label="As wide as the page" onClick={() => setQuery({ log: wide ? undefined : "wide" })}>
            <Icon name="wide" />
          </button>
        </span>
      </div>
      {now.problem.value && now.problem.value.code !== "unreachable" && <ProblemNote problem={now.problem.value} />}
      <View key={`${run} ${stream}`} log={now} over={over} label={`${stream} of run ${run}`} />
    </section>
  );
}

/** How far from the end the view may be to follow it, in pixels. */
const atEnd = 24;

function View({ log, over, label }: { log: Followed; over: boolean; label: string }) {
  const view = useRef<HTMLDivElement>(null);
  const lines = useRef<HTMLPreElement>(null);
  const last = useRef(0); // where the view was scrolled to
  const anchor = useRef<{ element: HTMLElement; top: number } | undefined>(undefined);
  void log.turn.value;
  const window = log.window.value;
  const pin = () => {
    const element = view.current;
    if (!element || !log.follows.peek()) return;
    element.scrollTop = element.scrollHeight;
    last.current = element.scrollTop;
  };
  useLayoutEffect(() => {
    const kept = anchor.current;
    anchor.current = undefined;
    if (kept?.element.isConnected && view.current) {
      view.current.scrollTop += kept.element.offsetTop - kept.top;
      last.current = view.current.scrollTop;
    } else pin();
  }, [log.turn.value, log.follows.value]);
  useEffect(() => {
    // The height of lines that were not near the window is estimated until they are.
    const observer = new ResizeObserver(pin);
    observer.observe(lines.current!);
    observer.observe(view.current!);
    return () => observer.disconnect();
  }, [log]);
  const scrolled = () => {
    if (!view.current) return; // the event comes in the next frame: the log may be gone by then
    const { scrollTop, scrollHeight, clientHeight } = view.current;
    const end = scrollHeight - scrollTop - clientHeight < atEnd;
    if (end && !log.apart.peek()) log.follows.value = true;
    else if (!end && scrollTop < last.current - 2) log.follows.value = false;
    last.current = scrollTop;
  };
  const earlier = () =>
    void log.earlier(() => {
      const element = lines.current?.querySelector<HTMLElement>(".log-block");
      if (element) anchor.current = { element, top: element.offsetTop };
    });
  const later = log.apart.value ? log.size.value - window.end : 0;
  const { open } = window;
  return (
    <>
      <div class={`log-view ${log.follows.value ? "follows" : ""}`} ref={view} tabIndex={0} role="region" aria-label={label} onScroll={scrolled}>
        {window.start > 0 && (
          <p class="log-note">
            <button type="button" class="link" disabled={log.loadingEarlier.value} onClick={earlier}>
              {log.loadingEarlier.value ? "Loading …" : "Load earlier lines"}
            </button>{" "}
            <span class="muted">{sizeText(window.start)} before this</span>
          </p>
        )}
        <pre class={wrap.value === "wrap" ? "wrap" : ""} ref={lines}>
          {window.blocks.map((block) => (
            <Lines key={block.id} block={block} more={block.from === window.start && window.start > 0} />
          ))}
          {open && <Lines key="open" block={{ id: 0, from: 0, to: 0, gap: 0, lines: [open] }} />}
        </pre>
        {window.blocks.length === 0 && !open && <p class="log-note muted">{log.loaded.value ? (over ? "The run has written nothing here." : "The run has written nothing here yet.") : "Loading …"}</p>}
        {later > 0 && <p class="log-note muted">{sizeText(later)} after this are not shown.</p>}
      </div>
      <p class="log-status muted small">
        <span>
          {plural(window.lines, "line")}
          {log.size.value > 0 && `${window.start === 0 && later === 0 ? ", " : " of a log of "}${sizeText(log.size.value)}`}
        </span>
        <span>{over ? (log.ended.value ? "the run has ended" : "") : log.follows.value ? "followed" : "not followed"}</span>
        {!log.follows.value && (
          <button type="button" class="link" onClick={() => log.toEnd()}>
            {over ? "To the end" : "Follow the end"}
          </button>
        )}
      </p>
    </>
  );
}

interface LinesProps {
  block: Block;
  /** More bytes before the block may be missing. */
  more?: boolean;
}

/** The lines of a block. They never change, so they are compared by the block, and drawn once. */
class Lines extends Component<LinesProps> {
  override shouldComponentUpdate(next: LinesProps) {
    return next.block !== this.props.block || (next.more !== this.props.more && next.block.gap > 0);
  }
  override render() {
    const { block, more } = this.props;
    if (block.gap > 0) return <span class="log-block gap">{leftOutText(block.gap).replace("… ", more ? "… at least " : "… ")}</span>;
    return (
      <bdi class="log-block">
        {blockPieces(block.lines).map(({ text, style }, i) => (style ? <span key={i} class={style}>{text}</span> : text))}
        {"\n"}
      </bdi>
    );
  }
}
