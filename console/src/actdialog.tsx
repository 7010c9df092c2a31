// The dialog of an act on a job or step. It shows what the act would do, asks for a reason, and has the same act as a
// command. The rules decide on the server: the dialog shows their preview, or their refusal.
import { useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { commandOf, meanings, openAct, shownJob, titles, warns, type Act, type Verb } from "./act.tsx";
import { call, callUrl, Problem, serverAddress } from "./api.ts";
import { authorHeaders, CommandLine, curlText, fieldFlags, fieldMembers, FormDialog, inputText, keepAuthor, ReasonFields, StepFieldInputs, usePreview, type StepFields } from "./form.tsx";
import { jobMark, stateName } from "./state.ts";
import type { Job, Preview, Step } from "./types.ts";
import { actMessage, Ago, plural, ProblemNote, shellWord, State } from "./widgets.tsx";

const needReason: Verb[] = ["settle", "skip", "giveUp"];

/** What of a job decides what an act would do. */
function stateOf(job: Job, steps: Iterable<[string, Step]>): string {
  return JSON.stringify([job.phase, job.current, job.desired, job.then, ...Array.from(steps, ([, step]) => [step.phase, step.current, step.desired, step.run, step.turn, step.failures, step.why?.reason])]);
}

export function ActDialog() {
  const act = openAct.value;
  return act ? <Dialog key={`${act.job.id}/${act.name ?? ""}/${act.verb}`} act={act} /> : null;
}

function Dialog({ act }: { act: Act }) {
  const { job, verb, name, step } = act;
  const cancel = useRef<HTMLButtonElement>(null);
  const reason = useSignal("");
  const fields: StepFields = { as: useSignal<"done" | "undone">(step?.desired === "undone" ? "undone" : "done"), value: useSignal(verb === "edit" ? inputText(step?.input) : ""), newKey: useSignal(false) };
  const sending = useSignal(false);
  const ofStep = step !== undefined;
  const members = fieldMembers(verb, ofStep, fields);

  const path = ["v1", "jobs", job.id, ...(name ? ["steps", name] : []), verb];
  const body = () => `{${[`"reason": ${JSON.stringify(reason.value)}`, ...members].join(", ")}}`;
  const send = <T,>(query: string): Promise<T> => call<T>(callUrl(path, query), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body: body() });
  const command = () => {
    const words = ["perdure", commandOf(verb), job.id, ...(name ? [name] : []), ...fieldFlags(verb, ofStep, fields)];
    if (reason.value) words.push("--reason", reason.value);
    return [...words, "--server", serverAddress].map(shellWord).join(" ");
  };
  const shown = shownJob.value;
  const state = useMemo(() => (shown?.job.id === job.id ? stateOf(shown.job, shown.steps) : ""), [shown]);
  const { preview, problem, current, refuse } = usePreview(members.join(", "), () => send<Preview>("?dryRun=true"), state);

  const close = () => (openAct.value = undefined);
  const carryOut = async () => {
    if (sending.value) return;
    sending.value = true;
    try {
      keepAuthor();
      actMessage.value = outcome(act, await send<Job>(""));
      close();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refuse(error.code === "unreachable" ? new Problem(0, "noAnswer", error.message, "The act may have been recorded nevertheless: look at the job's history before you repeat it.") : error);
      cancel.current?.focus(); // the button that was pressed is disabled now
    } finally {
      sending.value = false;
      act.done();
    }
  };
  const needed = needReason.includes(verb);
  return (
    <FormDialog title={`${titles[verb]} ${name ? `${name} of ` : ""}${job.key ?? job.id}`} send={titles[verb]} ready={current} sending={sending.value} submit={carryOut} close={close} warn={warns.includes(verb)} cancel={cancel}>
      <p class="muted">{meanings[verb]}</p>
      <StepFieldInputs verb={verb} ofStep={ofStep} fields={fields} job={job} input={inputText(step?.input)} />
      <ReasonFields reason={reason} required={needed} title={needed ? "Reason" : "Reason (optional)"} />
      <section aria-live="polite">
        <h3>What would happen now</h3>
        {problem ? <ProblemNote problem={problem} /> : preview ? <Effects preview={preview} /> : <p class="muted">…</p>}
      </section>
      <CommandLine command={command()} curl={curlText(callUrl(path), body())} />
    </FormDialog>
  );
}

/** What an act has done, as a sentence. */
function outcome({ job, verb, name, step }: Act, now: Job): string {
  const of = name ? `${name} of ${job.key ?? job.id}` : (job.key ?? job.id);
  if (now.unchanged) return `${titles[verb]} ${of}: nothing to do, it is so already.`;
  if (verb === "edit") return `The input of ${of} is changed.${(now.steps?.[name ?? ""] ?? step)?.phase === "parked" ? " The step stays parked until you resume it." : ""}`;
  return `${titles[verb]} ${of}: recorded. The job is ${jobMark(now).word}.`;
}

/** The most steps that a preview names as those that come later. */
const mostLater = 20;

function Effects({ preview: { job, effects } }: { preview: Preview }) {
  if (job.unchanged) return <p>Nothing: this holds already.</p>;
  const later = Object.entries(job.steps ?? {}).flatMap(([name, step]) => (step.why?.reason === "afterSteps" ? [name] : []));
  const lists: [text: string, steps: string[], more: number | undefined][] = [
    ["can run at once", effects.dispatch, effects.leftOut?.dispatch],
    ["settled at once", effects.settle, effects.leftOut?.settle],
    ["parked", effects.park, effects.leftOut?.park],
    ["keep their effect: no undo", effects.withoutUndo, effects.leftOut?.withoutUndo],
    ["wait for other steps", later.slice(0, mostLater), Math.max(0, later.length - mostLater)],
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
