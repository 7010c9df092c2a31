// The dialog that starts a bulk act: it shows which jobs there are, and on how many the rules would refuse the act.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { commandOf, meanings, titles, warns, type Verb } from "./act.tsx";
import { call, callUrl, Problem, serverAddress } from "./api.ts";
import { atLeast, countWords, openBulk, selected, stepVerbs, type Draft } from "./bulk.tsx";
import { authorHeaders, CommandLine, curlText, fieldFlags, fieldMembers, FormDialog, keepAuthor, ReasonFields, StepFieldInputs, usePreview, type StepFields } from "./form.tsx";
import { goOnFromHere } from "./place.ts";
import { link, type Query } from "./router.ts";
import { jobMark } from "./state.ts";
import type { Bulk, BulkPreview } from "./types.ts";
import { plural, ProblemNote, shellWord, State } from "./widgets.tsx";

/** What has happened to a job after an act. */
const participles: Record<Verb, string> = { undo: "undone", redo: "done again", resume: "resumed", giveUp: "given up", settle: "settled", skip: "skipped", edit: "edited", stop: "stopped", approve: "approved", reject: "rejected" };

/** Why the rules refuse an act, in words. */
const refusalWords: Record<string, string> = { conflict: "not in a state for this act", notFound: "no such job or step", invalid: "the act does not fit the job or step" };

/** The act is tried on so many jobs for the preview. */
const mostTried = 1000;

/** The filter of the API that selects what a query of the list selects. */
function bulkFilter(query: Query): Record<string, unknown> {
  const filter: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(query)) {
    if (name === "label" && Array.isArray(value)) {
      if (value.length > 0) filter.label = Object.fromEntries(value.map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]));
    } else if (value) filter[name] = value;
  }
  return filter;
}

export function BulkDialog() {
  const draft = openBulk.value;
  return draft ? <Dialog key={draft.verb} draft={draft} /> : null;
}

function Dialog({ draft }: { draft: Draft }) {
  const { verb, ids, filter } = draft;
  const reason = useSignal("");
  const step = useSignal(draft.step ?? "");
  const fields: StepFields = { as: useSignal<"done" | "undone">("done"), value: useSignal(""), newKey: useSignal(false) };
  const perSecond = useSignal("");
  const sending = useSignal(false);
  // The key makes a repeated start the same bulk act, if the answer to the first one is lost.
  const key = useSignal(Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join(""));
  const onStep = stepVerbs.includes(verb);
  const jobs = useMemo(() => JSON.stringify(ids ? { ids } : { filter: bulkFilter(filter) }).slice(1, -1), []);
  const name = step.value.trim();
  const members = onStep ? [`"step": ${JSON.stringify(name)}`, ...fieldMembers(verb, false, fields)] : [];
  // What must be entered before there can be a preview.
  const lacks = onStep && !name ? "Name the step." : verb === "edit" && !fields.value.value.trim() && !fields.newKey.value ? "Enter an input, or choose a new key." : "";

  const paceOk = !perSecond.value || (/^\d+$/.test(perSecond.value) && +perSecond.value >= 1 && +perSecond.value <= mostPerSecond);
  const pace = perSecond.value && paceOk ? [`"perSecond": ${+perSecond.value}`] : [];
  const body = (reason: string, ...more: string[]) => `{${[`"act": "${verb}"`, jobs, `"reason": ${JSON.stringify(reason)}`, ...members, ...pace, ...more].join(", ")}}`;
  const url = ["v1", "bulk"];
  const send = <T,>(query: string, body: string): Promise<T> => call<T>(callUrl(url, query), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body });
  const { preview, problem, current, refuse } = usePreview(lacks ? undefined : members.join(", "), () => send<BulkPreview>("?dryRun=true", body("preview")));

  const close = () => (openBulk.value = undefined);
  const start = async () => {
    if (sending.value) return;
    const goOn = goOnFromHere();
    sending.value = true;
    try {
      keepAuthor();
      const bulk = await send<Bulk>("", body(reason.value, `"key": "${key.value}"`));
      close();
      selected.value = new Set();
      draft.done();
      goOn(link.bulk(bulk.id));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refuse(error);
    } finally {
      sending.value = false;
    }
  };
  const refused = Object.entries(preview?.refused ?? {});
  const count = preview && atLeast(preview.count, preview.samples.length);
  const tried = Math.min(count?.n ?? 0, mostTried);
  const noneCan = tried > 0 && refused.reduce((sum, [, n]) => sum + n, 0) >= tried;
  const allTried = count !== undefined && !count.capped && count.n <= mostTried;
  return (
    <FormDialog
      title={`${titles[verb]} ${onStep ? "a step of many jobs" : "many jobs"}`}
      send={`${titles[verb]} ${count ? countWords(count) : ""}`}
      ready={current && paceOk && count !== undefined && (count.n > 0 || !!count.capped) && !(noneCan && allTried)}
      warn={warns.includes(verb)}
      sending={sending.value}
      submit={start}
      close={close}
    >
      <p class="muted">{meanings[verb]}</p>
      <p class="muted">A node performs the act on each job in turn. You can stop it at any time; what is done by then remains.</p>
      {onStep && (
        <label class="stack">
          <span class="muted">Step of each job</span>
          <input required maxLength={200} autocomplete="off" spellcheck={false} value={step.value} onInput={(event) => (step.value = event.currentTarget.value)} />
        </label>
      )}
      {onStep && <StepFieldInputs verb={verb} ofStep={false} fields={fields} />}
      <section aria-live="polite" class="stack">
        <h3>Which jobs</h3>
        {problem && <ProblemNote problem={problem} />}
        {!preview && !problem && <p class="muted">{lacks || "…"}</p>}
        {preview && count && (
          <>
            <p>
              <strong>{countWords(count)}</strong>
              {preview.unchanged > 0 && `, of which ${preview.unchanged} would stay as they are`}
            </p>
            <ul class="samples">
              {preview.samples.map((job) => (
                <li key={job.id}>
                  <State mark={jobMark(job)} /> <bdi>{job.key ?? job.id}</bdi>
                </li>
              ))}
              {count.n > preview.samples.length && <li class="muted">and {(count.n - preview.samples.length).toLocaleString("en")} more</li>}
            </ul>
            {noneCan && (
              <p class="state bad wrap">
                None of {allTried ? "these" : `the first ${tried.toLocaleString("en")}`} jobs can be {participles[verb]} now.
              </p>
            )}
            {refused.map(([code, n]) => (
              <p key={code}>
                The rules would refuse it on {plural(n, "job")} of the first {tried.toLocaleString("en")}: {refusalWords[code] && `${refusalWords[code]}, code `}
                <code>{code}</code>
              </p>
            ))}
          </>
        )}
      </section>
      <label class="stack">
        <span class="muted">Jobs per second, at most (1 to 10,000; empty: as fast as claims and reports allow)</span>
        <input type="number" min={1} max={mostPerSecond} step={1} name="perSecond" value={perSecond.value} onInput={(event) => (perSecond.value = event.currentTarget.value)} />
      </label>
      <ReasonFields reason={reason} required title="Reason, for the history of each job" />
      {ids && ids.length > mostNamed ? (
        <p class="muted small">As a command: perdure {commandOf(verb)} with the names of {plural(ids.length, "job")}, or with filter flags.</p>
      ) : (
        <CommandLine command={commandLine(draft, onStep ? name || "STEP" : "", [...(onStep ? fieldFlags(verb, false, fields) : []), ...(pace.length > 0 ? ["--per-second", perSecond.value] : [])], reason.value) ?? curlText(callUrl(url), body(reason.value || "…"))} />
      )}
    </FormDialog>
  );
}

/** The flags of the command line for filters with another name. */
const flagNames: Record<string, string> = { reason: "why", q: "search" };
const mostNamed = 20;
const mostPerSecond = 10_000;

/** The bulk act as a command; undefined if there is none. */
function commandLine({ verb, ids, filter }: Draft, step: string, flags: string[], reason: string): string | undefined {
  // The flag --step is both: the step of the act, and a filter.
  if (!ids && step && filter.step !== step) return undefined;
  const words = ["perdure", commandOf(verb), ...(ids ?? [])];
  if (!ids) {
    for (const [name, value] of Object.entries(filter)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one && !(step && name === "step")) words.push(`--${flagNames[name] ?? name}`, one);
      }
    }
  }
  if (step) words.push("--step", step);
  return [...words, ...flags, "--reason", reason || "…", "--server", serverAddress].map(shellWord).join(" ");
}
