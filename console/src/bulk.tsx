// The selection in the list of jobs, and what can be done with it. bulkdialog.tsx starts a bulk act, pages/bulk.tsx shows it.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { titles, type Verb } from "./act.tsx";
import { needs } from "./access.ts";
import { useKeys } from "./keys.ts";
import type { Query } from "./router.ts";
import type { Count, Job } from "./types.ts";
import { Menu, plural } from "./widgets.tsx";

/** The jobs that are selected in the list, by id. */
export const selected = signal<ReadonlySet<string>>(new Set());
/** The job that was selected last: where a range begins. */
let anchor = "";

/** The most jobs that one bulk act lists. */
const mostListed = 10_000;

const bulkVerbs: Verb[] = ["resume", "undo", "redo", "giveUp"];
/** The acts on a step of each job. */
export const stepVerbs: Verb[] = ["edit", "settle", "skip"];

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
export interface Draft {
  verb: Verb;
  /** The jobs; undefined: those that match the filter. */
  ids?: string[];
  filter: Query;
  /** For an act on a step of each job: the step that the operator probably means. */
  step?: string | undefined;
  done: () => void;
}

/** The bulk act whose dialog is open. */
export const openBulk = signal<Draft | undefined>(undefined);

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
  if (ids.length === 0) return null;
  const { order: _, ...filter } = query;
  const filtered = Object.values(filter).some((value) => (Array.isArray(value) ? value.length > 0 : value));
  const unable = needs("act", ids.length > mostListed);
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
              {...unable}
              onClick={() => open(verb)}
            >
              {titles[verb]} …
            </button>
          ))}
          <Menu title="A step" label="Act on a step of each job">
            {stepVerbs.map((verb) => (
              <button type="button" key={verb} {...unable} onClick={() => open(verb)}>
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
    </>
  );
}

/** A count that stopped early is at least what is shown. */
export function atLeast(count: Count, shown: number): Count {
  return { ...count, n: Math.max(count.n, shown) };
}

export function countWords(count: Count | undefined): string {
  if (!count) return "jobs";
  return `${count.n.toLocaleString("en")}${count.capped ? " or more" : ""} ${count.n === 1 ? "job" : "jobs"}`;
}
