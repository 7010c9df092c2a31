// The dialog of an act on a job or step. It shows what the act would do, asks for a reason, and has the same act as a
// command. The rules decide on the server: the dialog shows their preview, or their refusal.
import { signal, useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, callUrl, Problem, reach, serverAddress } from "./api.ts";
import { showJson, type Json } from "./json.ts";
import { jobMark, stateName } from "./state.ts";
import type { Job, Preview, Step } from "./types.ts";
import { Ago, Copy, Icon, plural, ProblemNote, shellWord, State } from "./widgets.tsx";

export type Verb = "undo" | "redo" | "resume" | "giveUp" | "settle" | "skip" | "edit";

export interface Act {
  job: Job;
  verb: Verb;
  name?: string;
  step?: Step;
  done: () => void; // called after the act
}

/** The act whose dialog is open. */
export const openAct = signal<Act | undefined>(undefined);

export const titles: Record<Verb, string> = { undo: "Undo", redo: "Redo", resume: "Resume", giveUp: "Give up", settle: "Settle", skip: "Skip", edit: "Edit" };
const needReason: Verb[] = ["settle", "skip", "giveUp"];

/** What each act does, for a person who has not read the manual. */
export const meanings: Record<Verb, string> = {
  undo: "The job is to be undone: every step that may have had an effect is undone, the last one first.",
  redo: "The job is to be done again.",
  resume: "What is parked, or waits for its next attempt, is tried again now.",
  giveUp: "The job is settled as it is now. Nothing more is done or undone, unless you undo or redo it.",
  settle: "You record what you have found out about the step. No agent is called.",
  skip: "The job goes on without the step. Its output is null.",
  edit: "The step gets another input. A parked step stays parked: resume it afterwards.",
};

/** The acts that make sense for a job, the most likely ones first. The rules decide whether they are allowed. */
export function actsOn(job: Job): Verb[] {
  const acts: Verb[] = [];
  if (job.phase === "parked") acts.push("resume");
  if (job.desired === "done") acts.push("undo");
  if (job.desired === "undone" || (job.phase === "settled" && job.current !== "done")) acts.push("redo");
  if (job.phase !== "settled") acts.push("giveUp");
  return acts;
}

/** The acts that make sense for a step. */
export function actsOnStep(step: Step): Verb[] {
  if (step.why?.reason === "approval") return ["settle"];
  if (step.phase !== "parked" && step.why?.reason !== "backoff") return [];
  return step.desired === "done" ? ["resume", "edit", "settle", "skip"] : ["resume", "settle"];
}

/** Buttons that open the dialogs of acts. */
export function ActButtons({ job, name, step, done }: { job: Job; name?: string; step?: Step; done: () => void }) {
  const verbs = step ? actsOnStep(step) : actsOn(job);
  const unreachable = reach.value.nextAttemptAt !== undefined;
  return (
    <div class="buttons">
      {verbs.map((verb, i) => (
        <button
          type="button"
          key={verb}
          class={i === 0 && (step?.phase ?? job.phase) === "parked" ? "main" : ""}
          disabled={unreachable}
          onClick={() => (openAct.value = { job, verb, done, ...(name === undefined || !step ? {} : { name, step }) })}
        >
          {titles[verb]} …
        </button>
      ))}
    </div>
  );
}

export function ActDialog() {
  const act = openAct.value;
  return act ? <Dialog key={`${act.job.id}/${act.name ?? ""}/${act.verb}`} act={act} /> : null;
}

const authorKey = "perdure.author";

function Dialog({ act }: { act: Act }) {
  const { job, verb, name, step } = act;
  const dialog = useRef<HTMLDialogElement>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  const reason = useSignal("");
  const author = useSignal(localStorage.getItem(authorKey) ?? "");
  const as = useSignal<"done" | "undone">(step?.desired === "undone" ? "undone" : "done");
  const value = useSignal(verb === "edit" && step?.input !== undefined ? showJson(step.input as Json) : "");
  const newKey = useSignal(false);
  const preview = useSignal<Preview | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const sending = useSignal(false);
  const hasValue = verb === "edit" || (verb === "settle" && as.value === "done") || (verb === "resume" && step !== undefined);
  const title = `${titles[verb]} ${name ? `${name} of ` : ""}${job.key ?? job.id}`;

  const path = ["v1", "jobs", job.id, ...(name ? ["steps", name] : []), verb];
  // Values of users are sent as they are written: reading them as numbers would round large ones.
  const body = (): string => {
    const fields = [`"reason": ${JSON.stringify(reason.value)}`];
    if (verb === "settle") fields.push(`"as": "${as.value}"`);
    if (hasValue && value.value.trim()) fields.push(`"${verb === "settle" ? "output" : "input"}": ${value.value}`);
    if (newKey.value) fields.push(`"newKey": true`);
    return `{${fields.join(", ")}}`;
  };
  const send = <T,>(query: string): Promise<T> =>
    call<T>(callUrl(path, query), { method: "POST", headers: { "Content-Type": "application/json", ...(author.value.trim() ? { "Perdure-Author": headerText(author.value.trim()) } : {}) }, body: body() });

  const curl = () => {
    const name = author.value.trim() ? ` -H ${shellWord(`Perdure-Author: ${author.value.trim()}`)}` : "";
    return `curl -fsS -X POST ${shellWord(callUrl(path))} -H 'Content-Type: application/json'${name} -d ${shellWord(body())}`;
  };

  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  // The preview follows what is entered.
  useEffect(() => {
    const timer = setTimeout(() => {
      send<Preview>("?dryRun=true").then(
        (answer) => {
          preview.value = answer;
          problem.value = undefined;
        },
        (error: unknown) => {
          preview.value = undefined;
          problem.value = error instanceof Problem ? error : new Problem(0, "unknown", String(error));
        },
      );
    }, preview.peek() || problem.peek() ? 300 : 0);
    return () => clearTimeout(timer);
  }, [as.value, value.value, newKey.value]);

  const close = () => (openAct.value = undefined);
  const carryOut = async () => {
    if (sending.value) return;
    sending.value = true;
    try {
      localStorage.setItem(authorKey, author.value.trim());
      await send<Job>("");
      close();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value =
        error.code === "unreachable" ? new Problem(0, "noAnswer", error.message, "The act may have been recorded nevertheless: look at the job's history before you repeat it.") : error;
      preview.value = undefined;
      cancel.current?.focus(); // the button that was pressed is disabled now
    } finally {
      sending.value = false;
      act.done();
    }
  };
  return (
    <dialog class="act" ref={dialog} aria-labelledby="act-title" onClose={close}>
      <header>
        <h2 id="act-title" class="clamp">
          <bdi>{title}</bdi>
        </h2>
        <button type="button" class="bare" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <form
        class="stack inner"
        onSubmit={(event) => {
          event.preventDefault();
          void carryOut();
        }}
      >
        <p class="muted">{meanings[verb]}</p>
        {verb === "settle" && (
          <fieldset class="choices">
            <legend>The step is</legend>
            {(["done", "undone"] as const).map((state) => (
              <label key={state}>
                <input type="radio" name="as" checked={as.value === state} onChange={() => (as.value = state)} /> <bdi>{stateName(job, state)}</bdi>
              </label>
            ))}
          </fieldset>
        )}
        {hasValue && (
          <label class="stack">
            <span class="muted">{verb === "settle" ? "Output, as JSON (optional)" : verb === "edit" ? "Input, as JSON" : "Another input, as JSON (empty: as it is now)"}</span>
            <textarea rows={5} spellcheck={false} autocomplete="off" wrap="off" value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />
          </label>
        )}
        {(verb === "edit" || (verb === "resume" && step)) && (
          <label>
            <input type="checkbox" checked={newKey.value} onChange={(event) => (newKey.value = event.currentTarget.checked)} /> Under a new key: no earlier run has had an effect
          </label>
        )}
        <div class="split">
          <label class="stack">
            <span class="muted">Reason{needReason.includes(verb) ? "" : " (optional)"}</span>
            <input required={needReason.includes(verb)} maxLength={1000} value={reason.value} onInput={(event) => (reason.value = event.currentTarget.value)} />
          </label>
          <label class="stack">
            <span class="muted">Your name, for the history</span>
            <input maxLength={100} autocomplete="username" value={author.value} onInput={(event) => (author.value = event.currentTarget.value)} />
          </label>
        </div>
        <section aria-live="polite">
          <h3>What would happen now</h3>
          {problem.value ? <ProblemNote problem={problem.value} /> : preview.value ? <Effects preview={preview.value} /> : <p class="muted">…</p>}
        </section>
        <Command act={act} as={as.value} reason={reason.value} value={hasValue ? value.value.trim() : ""} newKey={newKey.value} curl={curl()} />
        <div class="buttons">
          <button type="submit" class="main" disabled={sending.value || !preview.value}>
            {sending.value ? "Sending …" : titles[verb]}
          </button>
          <button type="button" ref={cancel} onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Effects({ preview: { job, effects } }: { preview: Preview }) {
  if (job.unchanged) return <p>Nothing: this holds already.</p>;
  const lists: [text: string, steps: string[], more: number | undefined][] = [
    ["can run at once", effects.dispatch, effects.leftOut?.dispatch],
    ["settled at once", effects.settle, effects.leftOut?.settle],
    ["parked", effects.park, effects.leftOut?.park],
    ["keep their effect: no undo", effects.withoutUndo, effects.leftOut?.withoutUndo],
  ];
  return (
    <div class="stack">
      <p>
        The job would be <State mark={jobMark(job)} />: <bdi>{stateName(job, job.current)}</bdi> → <bdi>{stateName(job, job.desired)}</bdi>
      </p>
      <dl class="pairs">
        {lists.map(
          ([text, steps, more]) =>
            steps.length > 0 && (
              <Fragment key={text}>
                <dt>{text}</dt>
                <dd class="said">
                  <bdi>{steps.join(", ")}</bdi>
                  {more ? ` and ${plural(more, "more step")}` : ""}
                </dd>
              </Fragment>
            ),
        )}
        {effects.waitFor.length > 0 && (
          <>
            <dt>wait</dt>
            <dd>
              {effects.waitFor.map((wait, i) => (
                <span key={wait.step}>
                  {i > 0 && ", "}
                  <bdi>{wait.step}</bdi>
                  {wait.until && (
                    <>
                      {" "}
                      (<Ago at={wait.until} />)
                    </>
                  )}
                </span>
              ))}
            </dd>
          </>
        )}
      </dl>
    </div>
  );
}

/** The act as a command. */
function Command({ act: { job, verb, name }, as, reason, value, newKey, curl }: { act: Act; as: string; reason: string; value: string; newKey: boolean; curl: string }) {
  const words = ["perdure", verb === "giveUp" ? "give-up" : verb, job.id, ...(name ? [name] : [])];
  if (verb === "settle") words.push("--as", as);
  if (value) words.push(verb === "settle" ? "--output" : "--input", shellWord(value));
  if (newKey) words.push("--new-key");
  if (reason) words.push("--reason", shellWord(reason));
  words.push("--server", shellWord(serverAddress));
  const command = words.join(" ");
  return (
    <div class="commands">
      <code>{command}</code>
      <Copy text={command} what="the command" />
      <Copy text={curl} what="as curl" label="curl" />
    </div>
  );
}

/** A text as the value of a header: its bytes in UTF-8, which fetch takes as characters. */
export function headerText(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
