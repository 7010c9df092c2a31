// States as they are shown: always a sign, a word and a colour. The signs are those of the command line
// (docs/cli.md, "Signs"), the colours those of drawings (internal/graph). cmd/perdure/row.go has the same rules.
import type { Job, Step } from "./types.ts";
import { span } from "./time.ts";

export type Tone = "calm" | "busy" | "good" | "warn" | "bad";

export interface Mark {
  sign: string;
  word: string;
  tone: Tone;
  /** What else there is to say. */
  detail: string;
}

/** The user's name of a state. */
export function stateName(job: Pick<Job, "states">, state: string): string {
  if (state === "done") return job.states?.done || state;
  if (state === "undone") return job.states?.undone || state;
  return state;
}

/** The state of a step. now is the server's time, in milliseconds. */
export function stepMark(job: Pick<Job, "states">, step: Step, now: number): Mark {
  switch (step.phase) {
    case "settled":
      return settledMark(job, step);
    case "parked":
      return { sign: "■", word: "parked", tone: "bad", detail: whyText(step, now) };
    case "running":
      return runningMark(step, now);
    case "ready":
      return { sign: "◌", word: "ready", tone: "busy", detail: toward(step) + whyText(step, now) };
    case "waiting": {
      const mark: Mark = { sign: "○", word: "waiting", tone: "calm", detail: toward(step) + whyText(step, now) };
      if (step.failures > 0 && step.why?.reason === "backoff") return { ...mark, sign: "↻", tone: "warn" };
      if (step.why?.reason === "approval") return { ...mark, sign: "?", tone: "warn", word: "approval" };
      return mark;
    }
  }
  return unknownMark(step.phase);
}

/** A word of a newer server. */
export function unknownMark(word: string): Mark {
  return { sign: "◇", word, tone: "calm", detail: "" };
}

function settledMark(job: Pick<Job, "states">, step: Step): Mark {
  const mark: Mark = { sign: "✓", word: stateName(job, step.current), tone: "good", detail: [ranFor(step), childrenText(step)].filter(Boolean).join("; ") };
  if (step.noUndo) return { ...mark, sign: "·", tone: "calm", detail: "no undo in its definition: nothing was undone" };
  if (step.givenUp) {
    return { sign: "×", word: "given up", tone: "bad", detail: [mark.word, mark.detail].filter(Boolean).join(", ") };
  }
  if (step.skipped && step.desired === "undone" && step.run > 0 && step.direction === "undo") {
    return { ...mark, sign: "↺", tone: "warn", detail: `was skipped; ${mark.detail}` };
  }
  if (step.skipped) return { ...mark, sign: "–", word: "skipped", tone: "calm" };
  if (step.current === "done") return mark;
  if (step.current === "undone") return step.run > 0 ? { ...mark, sign: "↺", tone: "warn" } : { ...mark, sign: "·", tone: "calm" };
  if (step.current === "unsure") return { ...mark, sign: "?", tone: "bad" };
  return { ...unknownMark(step.current), detail: mark.detail };
}

function runningMark(step: Step, now: number): Mark {
  const mark: Mark = { sign: "●", word: "running", tone: "busy", detail: `run ${step.run}` };
  if (step.direction === "undo") Object.assign(mark, { sign: "◐", word: "undoing" });
  if ((step.direction === "undo" ? "undone" : "done") !== step.desired) mark.detail += ", stop requested";
  if (step.lockedBy && !step.lockedBy.startsWith("@")) mark.detail += ` by ${step.lockedBy}`;
  if (step.why?.reason === "expired") mark.detail = step.why.text;
  else if (step.completeBy) mark.detail += `, ${span(Date.parse(step.completeBy) - now)} left`;
  const progress = progressText(step.progress);
  if (progress) mark.detail += `, ${progress}`;
  return mark;
}

function toward(step: Step): string {
  return step.desired === "undone" && step.current !== "undone" ? "to be undone: " : "";
}

/** Why a step is not running, with the time that is left now. */
export function whyText(step: Step, now: number): string {
  const why = step.why;
  if (!why) return "";
  if (why.reason === "approval" || why.reason === "signal") {
    const text = why.until ? why.text.replace(/ for another [^:]*/, ` for another ${span(Date.parse(why.until) - now)}`) : why.text;
    return why.message ? `${text.replace(/: approve or reject it$/, "")}: ${why.message}` : text;
  }
  if (why.until) {
    const left = span(Date.parse(why.until) - now);
    const comma = why.text.indexOf(", ");
    if (why.reason === "backoff" && comma >= 0) return `again in ${left}, ${why.text.slice(comma + 2)}`;
    if (why.reason === "notYet") return why.text.startsWith("sleeps") ? `sleeps for another ${left}` : `the job starts in ${left}`;
  }
  return why.text;
}

/** The latest run of a step that has ended, in words. */
export function ranFor(step: Step): string {
  if (step.run === 0) return "";
  let text = `run ${step.run}`;
  if (step.outcome === "failed" || step.outcome === "rejected" || step.outcome === "expired") text += ` ${step.outcome}`;
  if (step.endedAt && step.startedAt) text += `, ${span(Date.parse(step.endedAt) - Date.parse(step.startedAt))}`;
  return text;
}

/** How far the children of a step are, in words, as the command line has it. */
export function childrenText(step: Step): string {
  const counts = step.children;
  if (!counts || step.run === 0) return "";
  const jobs = (count: number) => `${count} child ${count === 1 ? "job" : "jobs"}`;
  const texts = step.desired === "undone" ? [`${counts.undone} of ${jobs(counts.submitted)} undone`, counts.done && `${counts.done} done`] : [`${counts.done} of ${jobs(counts.total)} done`, counts.failed && `${counts.failed} failed`];
  return [...texts, counts.active && `${counts.active} not settled`, counts.parked && `${counts.parked} parked`].filter(Boolean).join(", ");
}

/** Progress in the form {done, total, message}, each of which is optional; other forms are not shown. */
export function progressText(progress: unknown): string {
  const { done, total, message } = fieldsOf(progress);
  const numeral = (value: unknown) => typeof value === "number" || typeof value === "bigint";
  const parts: string[] = [];
  if (numeral(done)) parts.push(numeral(total) ? `${done}/${total}` : `${done}`);
  if (typeof message === "string" && message) parts.push(message);
  return parts.join(" ");
}

function fieldsOf(value: unknown): { [name: string]: unknown } {
  return typeof value === "object" && value !== null ? (value as { [name: string]: unknown }) : {};
}

const mark = (sign: string, word: string, tone: Tone): Mark => ({ sign, word, tone, detail: "" });

/** The state of a job as a whole. */
export function jobMark(job: Job): Mark {
  switch (job.phase) {
    case "parked":
      return mark("■", "parked", "bad");
    case "running":
      return job.desired === "undone" ? mark("◐", "undoing", "busy") : mark("●", "running", "busy");
    case "waiting":
      return mark("○", "waiting", "calm");
    case "settled":
      if (job.givenUp) return mark("×", "given up", "bad");
      if (job.current === "done") return mark("✓", stateName(job, "done"), "good");
      if (job.current === "undone") return mark("↺", stateName(job, "undone"), "warn");
      if (job.current === "unsure") return mark("?", "unsure", "bad");
      return unknownMark(job.current);
  }
  return unknownMark(job.phase);
}

/** The signs with what they mean, for the help. */
export const legend: [mark: Mark, what: string][] = [
  [mark("✓", "done", "good"), "the work is done"],
  [mark("●", "running", "busy"), "an agent works on it"],
  [mark("◌", "ready", "busy"), "it can run: no agent has taken it yet"],
  [mark("○", "waiting", "calm"), "it waits for other steps, a time or a limit"],
  [mark("↻", "waiting", "warn"), "it has failed, and is tried again by itself"],
  [mark("?", "approval", "warn"), "it waits for an approval"],
  [mark("?", "unsure", "bad"), "whether it had an effect is not known"],
  [mark("■", "parked", "bad"), "it has failed, and nothing more is tried until an operator acts"],
  [mark("◐", "undoing", "busy"), "its effect is being undone"],
  [mark("↺", "undone", "warn"), "its effect is undone"],
  [mark("·", "undone", "calm"), "it has never run, or has no undo"],
  [mark("–", "skipped", "calm"), "the job goes on without it"],
  [mark("×", "given up", "bad"), "an operator has ended it as it was"],
];

/** Which step of a job an operator looks for first: parked, unsure or given up, then failing, then running. */
export function urgency(mark: Mark): number {
  return mark.tone === "bad" ? 0 : mark.sign === "↻" || mark.sign === "?" ? 1 : mark.word === "running" || mark.word === "undoing" ? 2 : mark.word === "ready" ? 3 : 9;
}

const alertSigns: Record<string, Mark> = {
  parked: { sign: "■", word: "parked", tone: "bad", detail: "A step has failed, and nothing more is tried until an operator acts." },
  approval: { sign: "?", word: "approval", tone: "warn", detail: "A step waits for an approval." },
  undo: { sign: "↺", word: "undo", tone: "warn", detail: "The job is undone because a step failed." },
  restart: { sign: "↺", word: "restart", tone: "warn", detail: "The job is undone, and then starts again, because a step failed." },
  waiting: { sign: "↻", word: "waiting", tone: "warn", detail: "A step has failed often, and is tried again later." },
  alert: { sign: "!", word: "alert", tone: "warn", detail: "The definition asks for an alert after these failures." },
  overdue: { sign: "!", word: "overdue", tone: "bad", detail: "The job's deadline has passed." },
  output: { sign: "!", word: "output", tone: "warn", detail: "The job is done, and its output could not be computed." },
  refused: { sign: "×", word: "refused", tone: "bad", detail: "A submission in a caller's own transaction was refused." },
  clock: { sign: "!", word: "clock", tone: "bad", detail: "The clock of the database server was set." },
  undelivered: { sign: "■", word: "undelivered", tone: "bad", detail: "Notifications of a receiver are dead: they were not delivered in time." },
  schedule: { sign: "■", word: "schedule paused", tone: "bad", detail: "A schedule was paused, because its jobs have failed or were refused." },
  noSpace: { sign: "■", word: "no space", tone: "bad", detail: "The state directory of a host is full: it gets no runs." },
  setback: { sign: "!", word: "setback", tone: "bad", detail: "The store may have lost commits." },
};

/** What an alert is about. */
export function alertMark(kind: string): Mark {
  return alertSigns[kind] ?? unknownMark(kind);
}
