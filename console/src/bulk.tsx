// Bulk acts: the selection in the list of jobs, the dialog that starts a bulk act, and the pages that show them. A node
// carries a bulk act out; the page only shows how far it is.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { commandOf, meanings, titles, warns, type Verb } from "./act.tsx";
import { call, callUrl, Problem, reach, serverAddress } from "./api.ts";
import { authorHeaders, CommandLine, curlText, fieldFlags, fieldMembers, FormDialog, keepAuthor, ReasonFields, StepFieldInputs, usePreview, type StepFields } from "./form.tsx";
import { useKeys } from "./keys.ts";
import { useLoad } from "./load.ts";
import { go, place } from "./place.ts";
import { link, queryText, type Query } from "./router.ts";
import { jobMark, unknownMark, type Mark } from "./state.ts";
import type { Bulk, BulkPreview, Count, Job, PageBulk, PageBulkRefusal, PageJob } from "./types.ts";
import { Ago, AsOf, Copy, Menu, plural, ProblemNote, shellWord, State, useTitle, Waiting } from "./widgets.tsx";

/** The jobs that are selected in the list, by id. */
export const selected = signal<ReadonlySet<string>>(new Set());
/** The job that was selected last: where a range begins. */
let anchor = "";

/** The most jobs that one bulk act lists. */
const mostListed = 10_000;

const bulkVerbs: Verb[] = ["resume", "undo", "redo", "giveUp"];
/** The acts on a step of each job. */
const stepVerbs: Verb[] = ["edit", "settle", "skip"];

function setSelected(ids: string[], on: boolean): void {
  const next = new Set(selected.peek());
  for (const id of ids) {
    if (on) next.add(id);
    else next.delete(id);
  }
  selected.value = next;
}

/** The box that selects all rows that are shown. */
export function SelectAll({ jobs }: { jobs: readonly Job[] }) {
  const all = jobs.length > 0 && jobs.every((job) => selected.value.has(job.id));
  return (
    <th class="w-select">
      <input type="checkbox" aria-label="Select all jobs that are shown" checked={all} onChange={(event) => setSelected(jobs.map((job) => job.id), event.currentTarget.checked)} />
    </th>
  );
}

/** The box that selects a row. */
export function SelectRow({ job }: { job: Job }) {
  return (
    <td class="w-select">
      <input
        type="checkbox"
        aria-label={`Select ${job.key ?? job.id}`}
        checked={selected.value.has(job.id)}
        onChange={(event) => {
          anchor = job.id;
          setSelected([job.id], event.currentTarget.checked);
        }}
      />
    </td>
  );
}

/** What a bulk act is asked to do, before its dialog has filled in the rest. */
interface Draft {
  verb: Verb;
  /** The jobs; undefined: those that match the filter. */
  ids?: string[];
  filter: Query;
  /** For an act on a step of each job: the step that the operator probably means. */
  step?: string | undefined;
  done: () => void;
}

/** The bulk act whose dialog is open. */
const openBulk = signal<Draft | undefined>(undefined);

/** What can be done with the selected jobs. It is above the list while a job is selected. */
export function BulkBar({ jobs, query, count, done }: { jobs: readonly Job[]; query: Query; count: Count | undefined; done: () => void }) {
  const bar = useRef<HTMLDivElement>(null);
  useEffect(() => () => void (selected.value = new Set()), []);
  const focused = () => (document.activeElement as HTMLElement | null)?.dataset.job ?? "";
  useKeys({
    x: () => {
      const id = focused();
      if (!id) return;
      setSelected([id], !selected.peek().has(id));
      anchor = id;
    },
    X: () => {
      const ids = jobs.map((job) => job.id);
      const [from, to] = [ids.indexOf(anchor), ids.indexOf(focused())].sort((a, b) => a - b) as [number, number];
      if (from >= 0) setSelected(ids.slice(from, to + 1), true);
    },
    a: () => bar.current?.querySelector<HTMLElement>("button")?.focus(),
  });
  const ids = [...selected.value];
  const all = useSignal(false);
  useEffect(() => {
    if (ids.length === 0) all.value = false;
  }, [ids.length]);
  if (ids.length === 0) return <BulkDialog />;
  const { order: _, ...filter } = query;
  const filtered = Object.values(filter).some((value) => (Array.isArray(value) ? value.length > 0 : value));
  const unable = reach.value.nextAttemptAt !== undefined || ids.length > mostListed;
  const chosen = jobs.filter((job) => all.value || selected.value.has(job.id));
  const steps = new Set(chosen.map((job) => job.summary?.step));
  const step = typeof filter.step === "string" && filter.step ? filter.step : steps.size === 1 ? [...steps][0] : undefined;
  const open = (verb: Verb) => (openBulk.value = { verb, filter, done, step, ...(all.value ? {} : { ids }) });
  const known = count && atLeast(count, jobs.length);
  const n = all.value ? countWords(known) : plural(ids.length, "job");
  return (
    <>
      <div class="bulk-bar" role="region" aria-label="Selected jobs" ref={bar}>
        <div class="buttons">
          {bulkVerbs.map((verb) => (
            <button
              type="button"
              key={verb}
              disabled={unable}
              onClick={() => open(verb)}
            >
              {titles[verb]} …
            </button>
          ))}
          <Menu title="A step" label="Act on a step of each job">
            {stepVerbs.map((verb) => (
              <button type="button" key={verb} disabled={unable} onClick={() => open(verb)}>
                {titles[verb]} …
              </button>
            ))}
          </Menu>
        </div>
        <span role="status">{all.value ? `All ${n} that match` : `${n} selected`}</span>
        {!all.value &&
          known &&
          (known.n > ids.length || known.capped) &&
          (filtered ? (
            <button type="button" class="bare" onClick={() => (all.value = true)}>
              Select all {countWords(known)} that match
            </button>
          ) : (
            <span class="muted small">To select all jobs, not only those shown, set a filter.</span>
          ))}
        <button type="button" class="bare" onClick={() => (selected.value = new Set())}>
          Clear the selection
        </button>
      </div>
      <BulkDialog />
    </>
  );
}

/** A count that stopped early is at least what is shown. */
function atLeast(count: Count, shown: number): Count {
  return { ...count, n: Math.max(count.n, shown) };
}

/** What has happened to a job after an act. */
const participles: Record<Verb, string> = { undo: "undone", redo: "done again", resume: "resumed", giveUp: "given up", settle: "settled", skip: "skipped", edit: "edited" };

/** Why the rules refuse an act, in words. */
const refusalWords: Record<string, string> = { conflict: "not in a state for this act", notFound: "no such job or step", invalid: "the act does not fit the job or step" };

/** The act is tried on so many jobs for the preview. */
const mostTried = 1000;

function countWords(count: Count | undefined): string {
  if (!count) return "jobs";
  return `${count.n.toLocaleString("en")}${count.capped ? " or more" : ""} ${count.n === 1 ? "job" : "jobs"}`;
}

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

function BulkDialog() {
  const draft = openBulk.value;
  return draft ? <Dialog key={draft.verb} draft={draft} /> : null;
}

function Dialog({ draft }: { draft: Draft }) {
  const { verb, ids, filter } = draft;
  const reason = useSignal("");
  const step = useSignal(draft.step ?? "");
  const fields: StepFields = { as: useSignal<"done" | "undone">("done"), value: useSignal(""), newKey: useSignal(false) };
  const sending = useSignal(false);
  // The key makes a repeated start the same bulk act, if the answer to the first one is lost.
  const key = useSignal(Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join(""));
  const onStep = stepVerbs.includes(verb);
  const jobs = useMemo(() => JSON.stringify(ids ? { ids } : { filter: bulkFilter(filter) }).slice(1, -1), []);
  const name = step.value.trim();
  const members = onStep ? [`"step": ${JSON.stringify(name)}`, ...fieldMembers(verb, false, fields)] : [];
  // What must be entered before there can be a preview.
  const lacks = onStep && !name ? "Name the step." : verb === "edit" && !fields.value.value.trim() && !fields.newKey.value ? "Enter an input, or choose a new key." : "";

  const body = (reason: string, ...more: string[]) => `{${[`"act": "${verb}"`, jobs, `"reason": ${JSON.stringify(reason)}`, ...members, ...more].join(", ")}}`;
  const url = ["v1", "bulk"];
  const send = <T,>(query: string, body: string): Promise<T> => call<T>(callUrl(url, query), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body });
  const { preview, problem, current, refuse } = usePreview(lacks ? undefined : members.join(", "), () => send<BulkPreview>("?dryRun=true", body("preview")));

  const close = () => (openBulk.value = undefined);
  const start = async () => {
    if (sending.value) return;
    sending.value = true;
    try {
      keepAuthor();
      const bulk = await send<Bulk>("", body(reason.value, `"key": "${key.value}"`));
      close();
      selected.value = new Set();
      draft.done();
      go(link.bulk(bulk.id));
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
      ready={current && count !== undefined && (count.n > 0 || !!count.capped) && !(noneCan && allTried)}
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
      <ReasonFields reason={reason} required title="Reason, for the history of each job" />
      {ids && ids.length > mostNamed ? (
        <p class="muted small">As a command: perdure {commandOf(verb)} with the names of {plural(ids.length, "job")}, or with filter flags.</p>
      ) : (
        <CommandLine command={commandLine(draft, onStep ? name || "STEP" : "", onStep ? fieldFlags(verb, false, fields) : [], reason.value) ?? curlText(callUrl(url), body(reason.value || "…"))} />
      )}
    </FormDialog>
  );
}

/** The flags of the command line for filters with another name. */
const flagNames: Record<string, string> = { reason: "why", q: "search" };
const mostNamed = 20;

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

const stateMarks: Record<string, Mark> = {
  running: { ...unknownMark("running"), sign: "▶", tone: "busy" },
  done: { ...unknownMark("done"), sign: "✓", tone: "good" },
  stopped: { ...unknownMark("stopped"), sign: "■", tone: "warn" },
};

function bulkMark(bulk: Bulk): Mark {
  return stateMarks[bulk.state] ?? unknownMark(bulk.state);
}

function actName(bulk: Bulk): string {
  return `${titles[bulk.act as Verb] ?? bulk.act}${bulk.step ? ` ${bulk.step}` : ""}`;
}

/** The list of bulk acts, or one of them. */
export function BulkPages() {
  const { job: id } = place.value;
  return id ? <BulkPage key={id} id={id} /> : <BulkList />;
}

function BulkList() {
  useTitle("Bulk acts");
  const list = useLoad<PageBulk>(callUrl(["v1", "bulk"]), 3000);
  return (
    <>
      <div class="title">
        <h1>Bulk acts</h1>
      </div>
      {list.problem && <ProblemNote problem={list.problem} again={list.again} />}
      {!list.data ? (
        !list.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : list.data.items.length === 0 ? (
        <div class="box empty">
          <h2>There are no bulk acts</h2>
          <p class="muted">Select jobs in the list, or use filter flags of a command, to act on many jobs at once:</p>
          <pre>perdure resume --type order --error card_declined --reason 'the bank is back' --server {serverAddress}</pre>
          <a class="button" href={link.jobs()}>
            Jobs
          </a>
        </div>
      ) : (
        <div class="box data">
          <table>
            <thead>
              <tr>
                <th class="w-state">State</th>
                <th>Act</th>
                <th class="w-name c3">By</th>
                <th class="w-why c2">Reason</th>
                <th class="w-num num">Jobs</th>
                <th class="w-num num c2">Refused</th>
                <th class="w-time">Started</th>
              </tr>
            </thead>
            <tbody>
              {list.data.items.map((bulk) => (
                <tr key={bulk.id}>
                  <td>
                    <State mark={bulkMark(bulk)} />
                  </td>
                  <td>
                    <a data-row href={link.bulk(bulk.id)} title={bulk.id}>
                      <bdi>{actName(bulk)}</bdi>
                    </a>
                  </td>
                  <td class="c3">
                    <bdi>{bulk.author}</bdi>
                  </td>
                  <td class="c2" title={bulk.reason}>
                    <bdi>{bulk.reason}</bdi>
                  </td>
                  <td class="num">{bulk.matched.toLocaleString("en")}</td>
                  <td class="num c2">{bulk.refused.toLocaleString("en")}</td>
                  <td>
                    <Ago at={bulk.startedAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <div class="below">
            <AsOf at={list.at} />
            <span class="muted small">A bulk act is kept for 90 days after its end.</span>
          </div>
        </div>
      )}
    </>
  );
}

/** The query of the list of jobs that shows what a filter selects. */
function listQuery(bulk: Bulk): Query {
  const query: Query = {};
  for (const [name, value] of Object.entries(bulk.filter ?? {})) {
    if (name === "label") query.label = Object.entries(value as Record<string, string>).map(([k, v]) => `${k}=${v}`);
    else query[name] = Array.isArray(value) ? (value as string[]) : String(value);
  }
  return query;
}

/** The filters that say what state a job is in; the others say which job it is. */
const stateFilters = ["phase", "reason", "error", "step", "agent", "current", "desired", "alert"];

/** A filter in words. */
function filterWords(bulk: Bulk): string {
  return Object.entries(listQuery(bulk))
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => `${name} ${one}`))
    .join(", ");
}

/** The filter without states: what the jobs have become. Undefined if nothing else selects them. */
function laterQuery(bulk: Bulk): Query | undefined {
  const query = Object.entries(listQuery(bulk));
  const rest = query.filter(([name]) => !stateFilters.includes(name));
  return rest.length > 0 && rest.length < query.length ? Object.fromEntries(rest) : undefined;
}

const refusalsPage = 100;
/** So many refusals of a bulk act are kept. */
const refusalsKept = 1000;

function BulkPage({ id }: { id: string }) {
  const page = useLoad<Bulk>(callUrl(["v1", "bulk", id]), 1000);
  // How many jobs match the filter now.
  const matching = useLoad<PageJob>(page.data?.filter ? callUrl(["v1", "jobs"], queryText({ ...listQuery(page.data), count: "true", limit: "1" })) : "", 10_000);
  const problem = useSignal<Problem | undefined>(undefined);
  useTitle(page.data ? `${actName(page.data)} ${page.data.step ? "of many jobs" : "many jobs"}` : "Bulk act");
  const change = async (verb: "stop" | "resume") => {
    try {
      problem.value = undefined;
      await call<Bulk>(callUrl(["v1", "bulk", id, verb]), { method: "POST", headers: authorHeaders() });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      page.again();
    }
  };
  const bulk = page.data;
  if (!bulk) {
    return (
      <>
        <div class="title">
          <h1>Bulk act</h1>
        </div>
        {page.problem ? (
          <ProblemNote problem={page.problem} again={page.again} />
        ) : (
          <div class="box">
            <Waiting />
          </div>
        )}
      </>
    );
  }
  const later = laterQuery(bulk);
  const expected = Math.max(bulk.expected.n, bulk.matched, 1);
  const n = (x: number) => x.toLocaleString("en");
  const counts: [title: string, count: number, href?: string][] = [
    ["performed", bulk.done],
    ["unchanged", bulk.unchanged],
    ["refused", bulk.refused, "#refusals"],
  ];
  return (
    <>
      <div class="title">
        <h1>
          <bdi>{actName(bulk)}</bdi> {bulk.step ? "of many jobs" : "many jobs"}
        </h1>
        <State mark={bulkMark(bulk)} pill />
        <div class="buttons">
          {bulk.state === "running" && (
            <button type="button" disabled={reach.value.nextAttemptAt !== undefined} onClick={() => void change("stop")}>
              Stop
            </button>
          )}
          {bulk.state === "stopped" && (
            <button type="button" class="main" disabled={reach.value.nextAttemptAt !== undefined} onClick={() => void change("resume")}>
              Resume
            </button>
          )}
        </div>
      </div>
      {(problem.value ?? page.problem) && <ProblemNote problem={(problem.value ?? page.problem)!} />}
      <div class="box inner stack">
        <progress max={expected} value={bulk.matched} aria-label="Jobs that were met" />
        <p>
          {n(bulk.matched)} of {n(expected)}
          {bulk.expected.capped && bulk.state !== "done" ? " or more" : ""} jobs
          {bulk.rate ? `, ${n(Math.round(bulk.rate))} in a second` : ""}
          {bulk.expectedEnd && (
            <>
              , expected end <Ago at={bulk.expectedEnd} />
            </>
          )}
        </p>
        <dl class="pairs">
          {counts.map(([title, count, href]) => [
            <dt key={title}>{title}</dt>,
            <dd key={`${title} n`}>{href && count > 0 ? <a href={href}>{n(count)}</a> : n(count)}</dd>,
          ])}
          <dt>meaning</dt>
          <dd class="muted">“Performed”: the act is recorded. What has become of a job since then is on its page{later ? ", and in the list below" : ""}.</dd>
          {bulk.filter && [
            <dt key="f">filter</dt>,
            <dd key="fw">
              <bdi>{filterWords(bulk)}</bdi>
            </dd>,
          ]}
          <dt>jobs</dt>
          <dd>
            {bulk.filter ? (
              <>
                {matching.data?.count && <>{countWords(atLeast(matching.data.count, matching.data.items.length))}, </>}
                <a href={link.jobs(listQuery(bulk))}>those that match the filter now</a>
                {later && (
                  <>
                    ; <a href={link.jobs(later)}>what has become of them</a>
                    <span class="muted">: the filter without states</span>
                  </>
                )}
              </>
            ) : (
              `${n(bulk.jobs ?? 0)} that were listed`
            )}
          </dd>
          <dt>by</dt>
          <dd>
            <bdi>{bulk.author}</bdi>, <Ago at={bulk.startedAt} />
          </dd>
          <dt>reason</dt>
          <dd class="said">
            <bdi>{bulk.reason}</bdi>
          </dd>
          {bulk.stoppedBy && [
            <dt key="s">stopped by</dt>,
            <dd key="sb">
              <bdi>{bulk.stoppedBy}</bdi>
            </dd>,
          ]}
          {bulk.endedAt && [
            <dt key="e">ended</dt>,
            <dd key="ea">
              <Ago at={bulk.endedAt} />
            </dd>,
          ]}
          <dt>id</dt>
          <dd>
            <code>{bulk.id}</code> <Copy text={bulk.id} what="the id" />
          </dd>
        </dl>
      </div>
      {bulk.refused > 0 && <Refusals bulk={bulk} />}
      <AsOf at={page.at} />
    </>
  );
}

/** The jobs on which a bulk act was refused. While it runs, the last page that is shown is loaded again. */
function Refusals({ bulk }: { bulk: Bulk }) {
  const cursors = useSignal<string[]>([""]); // of the pages that are shown
  const url = (cursor: string) => callUrl(["v1", "bulk", bulk.id, "refusals"], queryText({ limit: String(refusalsPage), cursor }));
  const earlier = useSignal<PageBulkRefusal[]>([]);
  const last = useLoad<PageBulkRefusal>(url(cursors.value.at(-1)!), bulk.state === "running" ? 3000 : 0);
  const items = [...earlier.value, ...(last.data ? [last.data] : [])].flatMap((page) => page.items);
  const more = () => {
    const next = last.data?.nextCursor;
    if (!last.data || !next) return;
    earlier.value = [...earlier.value, last.data];
    cursors.value = [...cursors.value, next];
  };
  return (
    <div class="box data" id="refusals">
      {last.problem && <ProblemNote problem={last.problem} again={last.again} />}
      <table>
        <thead>
          <tr>
            <th>Refused</th>
            <th class="w-name c2">Code</th>
            <th class="w-wide">Reason</th>
          </tr>
        </thead>
        <tbody>
          {items.map((refusal) => (
            <tr key={refusal.job}>
              <td>
                <a data-row href={link.job(refusal.job)}>
                  <bdi>{refusal.key ?? refusal.job}</bdi>
                </a>
              </td>
              <td class="c2">
                <code>{refusal.code}</code>
              </td>
              <td class="text">
                <bdi>{refusal.message}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="below">
        {last.data?.nextCursor && (
          <button type="button" onClick={more}>
            More
          </button>
        )}
        <span class="muted small">
          {items.length.toLocaleString("en")} of {bulk.refused.toLocaleString("en")}
          {bulk.refused > refusalsKept && `, of which the first ${refusalsKept.toLocaleString("en")} are kept`}. As a command: <code>perdure bulk show {bulk.id} --refusals</code>
        </span>
      </div>
    </div>
  );
}
