// The head of a job's page: its state, what an operator can do, and a sentence that says what is wrong.
import { curlToken, may, needs } from "./access.ts";
import { ActButtons, actsOn, actsOnStep, needsOf, openAct, titles, type Verb } from "./act.tsx";
import { callUrl, reach, serverAddress } from "./api.ts";
import { place } from "./place.ts";
import { save } from "./picturemenu.tsx";
import { link } from "./router.ts";
import { alertMark, jobMark, stateName, whyText, type Mark } from "./state.ts";
import { span } from "./time.ts";
import type { Job, Step } from "./types.ts";
import { shorten } from "./view.ts";
import { Ago, Copy, copyText, Icon, Menu, now, plural, shellWord, State } from "./widgets.tsx";

/** Columns of a step's name in a button. */
const longestStepName = 24;

export function Head({ job, steps, live, again }: { job: Job; steps: ReadonlyMap<string, Step>; live: boolean; again: () => void }) {
  // A job that is parked because a step waits for an approval has nothing to resume.
  const approvals = job.phase === "settled" ? [] : [...steps].filter(([, step]) => step.why?.reason === "approval");
  const parked = approvals.length === 0 || [...steps.values()].some((step) => step.phase === "parked" && step.why?.reason !== "approval");
  const verbs = actsOn(job).filter((verb) => verb !== "resume" || parked);
  const unreachable = reach.value.nextAttemptAt !== undefined;
  const open = (verb: Verb) => (openAct.value = { job, verb, done: again });
  const url = callUrl(["v1", "jobs", job.id]);
  const download = async () => {
    const response = await fetch(url);
    if (response.ok) save(`${job.key ?? job.id}.json`, await response.blob());
  };
  return (
    <div class="title job-head data">
      <h1 title={job.key ?? job.type}>
        <bdi>{job.key ?? job.type}</bdi>
      </h1>
      <State mark={jobMark(job)} pill />
      {job.startAt && job.phase !== "settled" && Date.parse(job.startAt) > Date.now() && (
        <span class="muted deadline">
          starts <Ago at={job.startAt} />
        </span>
      )}
      {job.completeBy && job.phase !== "settled" && (
        <span class="muted deadline">
          deadline <Ago at={job.completeBy} />
        </span>
      )}
      {live && (
        <span class="state busy live">
          <span class="live-dot" aria-hidden="true">
            ●
          </span>{" "}
          live
        </span>
      )}
      <div class="buttons end">
        {approvals.length === 1 &&
          (["approve", "reject"] as const).map((verb) => (
            <button type="button" key={verb} class={verb === "approve" ? "main" : ""} {...needsOf(verb, approvals[0]![1])} onClick={() => (openAct.value = { job, verb, name: approvals[0]![0], step: approvals[0]![1], done: again })}>
              {titles[verb]} <bdi>{shorten(approvals[0]![0], longestStepName)}</bdi> …
            </button>
          ))}
        {verbs
          .filter((verb) => verb !== "giveUp")
          .map((verb, i) => (
            <button type="button" key={verb} class={i === 0 && job.phase === "parked" && parked ? "main" : ""} {...needs("act")} onClick={() => open(verb)}>
              {titles[verb]} …
            </button>
          ))}
        <Menu title="More" label="More actions" right>
          {verbs.includes("giveUp") && (
            <button type="button" {...needs("act")} onClick={() => open("giveUp")}>
              Give up …
            </button>
          )}
          {may("submit") ? (
            <a href={link.submit(job.key ?? job.id)}>Submit a similar job …</a>
          ) : (
            <button type="button" {...needs("submit")}>
              Submit a similar job …
            </button>
          )}
          <button type="button" onClick={() => copyText(job.id)}>
            Copy the id
          </button>
          <button type="button" onClick={() => copyText(`perdure get ${job.id} --server ${shellWord(serverAddress)}`)}>
            Copy as command
          </button>
          <button type="button" onClick={() => copyText(`curl -fsS ${shellWord(url)}${curlToken()}`)}>
            Copy as curl
          </button>
          <button type="button" disabled={unreachable} onClick={download}>
            Download as JSON
          </button>
        </Menu>
      </div>
    </div>
  );
}

/** What is known of the job as a whole. */
export function Facts({ job }: { job: Job }) {
  const labels = Object.entries(job.labels ?? {});
  return (
    <div class="facts data">
      {job.key && (
        <span>
          type{" "}
          <a href={link.jobs({ type: job.type })}>
            <bdi>{job.type}</bdi>
          </a>
        </span>
      )}
      {job.parent && <Parent parent={job.parent} />}
      <span>
        <b>
          <bdi>{stateName(job, job.current)}</bdi>
        </b>{" "}
        →{" "}
        <b>
          <bdi>{stateName(job, job.desired)}</bdi>
        </b>
        {job.then && (
          <>
            {" "}
            →{" "}
            <b>
              <bdi>{stateName(job, job.then)}</bdi>
            </b>
          </>
        )}
      </span>
      {job.unsettled > 0 && <a href={link.job(place.value.job, { tab: "steps", open: "true" })}>{plural(job.unsettled, "step")} unsettled</a>}
      {job.priority !== 0 && (
        <span>
          priority <b>{job.priority}</b>
        </span>
      )}
      {!!job.restarts && <span>{plural(job.restarts, "restart")}</span>}
      <span>
        submitted{" "}
        <b>
          <Ago at={job.submittedAt} />
        </b>
      </span>
      {job.settledAt && job.phase === "settled" && (
        <span>
          settled{" "}
          <b>
            <Ago at={job.settledAt} />
          </b>{" "}
          after {span(Date.parse(job.settledAt) - Date.parse(job.submittedAt))}
        </span>
      )}
      <span class="id">
        <code>{job.id}</code> <Copy text={job.id} what="the id (.)" />
      </span>
      {job.traceId && (
        <span class="id">
          trace {job.traceUrl ? <a href={job.traceUrl} rel="noreferrer"><code>{job.traceId}</code></a> : <code>{job.traceId}</code>} <Copy text={job.traceId} what="the id of the trace" />
        </span>
      )}
      {labels.map(([name, value]) => (
        <a class="chip" key={name} href={link.jobs({ label: `${name}=${value}` })} title="Jobs with this label">
          <span class="cut">
            <bdi>{name}</bdi>=<bdi>{value}</bdi>
          </span>
        </a>
      ))}
    </div>
  );
}

/** The step whose child the job is: JOB/STEP. */
function Parent({ parent }: { parent: string }) {
  const slash = parent.lastIndexOf("/");
  const [owner, step] = [parent.slice(0, slash), parent.slice(slash + 1)];
  return (
    <span>
      child of{" "}
      <a class="underlined" href={link.job(owner, { step })}>
        step <bdi>{step}</bdi>
      </a>
      , with{" "}
      <a class="underlined" href={link.jobs({ parent })}>
        its other children
      </a>
    </span>
  );
}

const mostAttention = 5;

/** Something that an operator has to know, as a sentence about a step. */
interface Trouble {
  name: string;
  /** How many other steps have the same trouble. */
  others?: number;
  bad: boolean;
  /** What the step does, and what several steps do. */
  does: string;
  do: string;
  text: string;
  /** The step's last error in full, if the sentence has only its code. */
  said?: string | undefined;
  /** What can be done. Equal remedies are shown once. */
  remedy: string;
}

/** A text that ends as a sentence does. */
function sentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** What is wrong with a step, and what can be done. */
export function troubleOf(name: string, step: Step, time: number): Trouble | undefined {
  const code = step.lastError?.code;
  const failures = plural(step.failures, "failure");
  const reason = step.why?.reason;
  if (step.phase === "parked") {
    const remedy = step.desired === "done" ? "Resume it, edit its input, settle it, skip it, or undo the job." : "Resume it, settle it, or redo the job.";
    if (!code) return { name, bad: true, does: "is parked", do: "are parked", text: `: ${whyText(step, time).replace(/; try: .*$/s, "").replace(/^parked /, "") || "nothing more is tried"}.`, remedy };
    return { name, bad: true, does: "is parked", do: "are parked", text: `: ${code} after ${failures}.`, said: step.lastError?.message, remedy };
  }
  if (reason === "approval") return { name, bad: false, does: "waits", do: "wait", text: sentence(` for ${whyText(step, time).replace(/^waits for /, "").replace(/: approve or reject it$/, "")}`), remedy: "Approve or reject it." };
  if (reason === "backoff" && step.failures > 0) {
    return { name, bad: false, does: "has failed", do: "have failed", text: `: ${code ? `${code}, ` : ""}${failures}; ${whyText(step, time).split(", ")[0]}.`, said: step.lastError?.message, remedy: "Resume it to try again now." };
  }
  if (reason === "noAgent") return { name, bad: false, does: "waits", do: "wait", text: `: no process claims runs of the agent ${step.agent}.`, remedy: `Start a process of this agent.` };
  return undefined;
}

/** What an operator has to know before all else. */
export function Attention({ job, steps, marks, again }: { job: Job; steps: ReadonlyMap<string, Step>; marks: ReadonlyMap<string, Mark>; again: () => void }) {
  const found = new Map<string, Trouble>();
  const time = now.value;
  for (const [name, step] of steps) {
    const reason = step.why?.reason;
    if (step.phase !== "parked" && reason !== "approval" && reason !== "backoff" && reason !== "noAgent") continue;
    // Steps with the same trouble are one sentence, about the first of them.
    const key = step.phase === "parked" || reason === "backoff" ? `${step.phase} ${step.lastError?.code ?? name}` : reason === "noAgent" ? `noAgent ${step.agent}` : name;
    const before = found.get(key);
    if (before) before.others = (before.others ?? 0) + 1;
    else {
      const trouble = troubleOf(name, step, time);
      if (trouble) found.set(key, trouble);
    }
  }
  const all = [...found.values()].sort((a, b) => Number(b.bad) - Number(a.bad));
  const troubles = all.slice(0, mostAttention);
  const more = all.slice(mostAttention).reduce((n, trouble) => n + 1 + (trouble.others ?? 0), 0);
  const alerts = (job.alerts ?? []).filter((alert) => alert.kind !== "parked" && alert.kind !== "approval");
  if (troubles.length === 0 && alerts.length === 0 && !job.givenUp) return null;
  const [first] = troubles;
  const one = troubles.length === 1 && first && !first.others ? { name: first.name, step: steps.get(first.name) } : undefined;
  const bad = job.givenUp || troubles.some((trouble) => trouble.bad);
  return (
    <div class={`note ${bad ? "bad" : "warn"}`}>
      <Icon name="warn" />
      <div class="body">
        {job.givenUp && (
          <p>
            Given up by <bdi>{job.givenUp.by}</bdi>
            {job.givenUp.reason && (
              <>
                : <bdi>{job.givenUp.reason}</bdi>
              </>
            )}
          </p>
        )}
        {troubles.map((trouble, i) => (
          <p key={trouble.name}>
            <a href={link.job(place.value.job, { tab: place.value.query.get("tab") ?? undefined, step: trouble.name })}>
              <bdi>{trouble.name}</bdi>
            </a>{" "}
            {trouble.others ? (
              <>
                and <a href={link.job(place.value.job, { tab: "steps", state: marks.get(trouble.name)?.word })}>{plural(trouble.others, "more step")}</a> {trouble.do}
              </>
            ) : (
              trouble.does
            )}
            <bdi class="said">{trouble.text}</bdi>
            {(i + 1 === troubles.length || troubles[i + 1]!.remedy !== trouble.remedy) && <> {trouble.remedy}</>}
            {trouble.said && (
              <span class="muted said clamp">
                <bdi>{trouble.said}</bdi>
              </span>
            )}
          </p>
        ))}
        {one?.step && one.step.why?.reason !== "approval" && actsOnStep(one.step).length > 0 && <ActButtons job={job} name={one.name} step={one.step} done={again} quiet />}
        {more > 0 && (
          <p>
            <a href={link.job(place.value.job, { tab: "steps", open: "true" })}>{plural(more, "more step")}</a>
          </p>
        )}
        {alerts.slice(0, mostAttention).map((alert) => (
          <p key={String(alert.id)}>
            <State mark={{ ...alertMark(alert.kind), detail: "" }} />{" "}
            {alert.step && (
              <>
                <a href={link.job(place.value.job, { tab: place.value.query.get("tab") ?? undefined, step: alert.step })}>
                  <bdi>{alert.step}</bdi>
                </a>
                :{" "}
              </>
            )}
            <bdi class="said">{alert.message}</bdi>
          </p>
        ))}
        {alerts.length > mostAttention && <p>{plural(alerts.length - mostAttention, "more alert")}</p>}
      </div>
    </div>
  );
}
