// Acts on a job or step: which of them make sense, and the buttons that open their dialogs (actdialog.tsx).
import { signal } from "@preact/signals";
import { hasToken, me, needs } from "./access.ts";
import type { Job, Step } from "./types.ts";

export type Verb = "undo" | "redo" | "resume" | "giveUp" | "settle" | "skip" | "edit" | "stop" | "approve" | "reject";

export interface Act {
  job: Job;
  verb: Verb;
  name?: string;
  step?: Step;
  done: () => void; // called after the act
}

/** The act whose dialog is open. */
export const openAct = signal<Act | undefined>(undefined);

/** The job whose page is shown, as it is now. */
export const shownJob = signal<{ job: Job; steps: ReadonlyMap<string, Step> } | undefined>(undefined);

export const titles: Record<Verb, string> = { undo: "Undo", redo: "Redo", resume: "Resume", giveUp: "Give up", settle: "Settle", skip: "Skip", edit: "Edit", stop: "Stop", approve: "Approve", reject: "Reject" };
/** Acts that end or reverse work. */
export const warns: Verb[] = ["undo", "giveUp", "stop", "reject"];

/** The command of an act. */
export const commandOf = (verb: Verb): string => (verb === "giveUp" ? "give-up" : verb);

/** What each act does, for a person who has not read the manual. */
export const meanings: Record<Verb, string> = {
  undo: "The job is to be undone: every step that may have had an effect is undone, the last one first.",
  redo: "The job is to be done again.",
  resume: "What is parked, or waits for its next attempt, is tried again now.",
  giveUp: "The job is settled as it is now. Nothing more is done or undone, unless you undo or redo it.",
  settle: "You record what you have found out about the step. No agent is called.",
  skip: "The job goes on without the step. Its output is null.",
  stop: "The process that runs the step is told to stop. The run fails, and what follows a failure follows.",
  approve: "You approve the step. It is done once as many have approved as it needs.",
  reject: "You reject the step. It fails, and what follows a failure follows.",
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
  if (step.why?.reason === "approval") return ["approve", "reject", "settle"];
  if (step.why?.reason === "signal") return ["settle", "skip"];
  if (step.phase === "running") return step.stopRequestedAt ? [] : ["stop"];
  if (step.phase !== "parked" && step.why?.reason !== "backoff") return [];
  return step.desired === "done" ? ["resume", "edit", "settle", "skip"] : ["resume", "settle"];
}

/**
 * The attributes of the button of an act. The members of a group decide an approval, whatever their user role. Whoever needs
 * no token has no groups, and may decide as well.
 */
export function needsOf(verb: Verb, step?: Step): { disabled: boolean; title?: string } {
  const group = verb === "approve" || verb === "reject" ? step?.why?.group : undefined;
  if (!group || !hasToken()) return needs("act");
  if (!me.value?.groups?.includes(group)) return { disabled: true, title: `needs the group ${group}` };
  return needs("read");
}

/** Buttons that open the dialogs of acts. */
export function ActButtons({ job, name, step, done, quiet }: { job: Job; name?: string; step?: Step; done: () => void; quiet?: boolean }) {
  const verbs = step ? actsOnStep(step) : actsOn(job);
  return (
    <div class="buttons">
      {verbs.map((verb, i) => (
        <button
          type="button"
          key={verb}
          class={!quiet && i === 0 && (step?.phase ?? job.phase) === "parked" ? "main" : ""}
          {...needsOf(verb, step)}
          onClick={() => (openAct.value = { job, verb, done, ...(name === undefined || !step ? {} : { name, step }) })}
        >
          {titles[verb]}
          {step && verb === "edit" ? " input" : ""} …
        </button>
      ))}
    </div>
  );
}
