// The list of jobs: filters, pages by cursor, and the first page as it changes (live.ts). Rows stay where they are: newer
// jobs are counted, and shown when the user asks for them.
import { callUrl } from "../api.ts";
import { BulkBar, SelectAll, SelectRow } from "../bulk.tsx";
import { FirstJob } from "../firstjob.tsx";
import { useLiveList } from "../live.ts";
import { useOlder } from "../older.ts";
import { place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { jobMark, stateName } from "../state.ts";
import { minute, stamp, zoneName } from "../time.ts";
import type { Job, PageJob } from "../types.ts";
import { Views } from "../views.tsx";
import { Ago, AsOf, Icon, Newer, now, plural, ProblemNote, State, timeStyle, useTitle, Waiting } from "../widgets.tsx";

/** The most rows that the page keeps. */
const mostRows = 1000;
const pageSize = 50;

/** A filter of the API: its name, its title, and the words that it takes, an example of a text, or that it is a time. */
type Field = [name: string, title: string, words: [word: string, title: string][] | string | typeof aTime];
const aTime = Symbol();

const same = (words: string[]): [string, string][] => words.map((word) => [word, word]);

/** The filters that are always shown, and those that "More filters" shows. */
const fields: Field[] = [
  ["q", "Search", "key or id begins with, or a label"],
  ["phase", "Phase", same(["waiting", "running", "parked", "settled"])],
  ["type", "Type", "order"],
  [
    "reason",
    "Why it waits",
    [
      ["parked", "parked"],
      ["approval", "approval"],
      ["noAgent", "no agent"],
      ["agentBusy", "agent busy"],
      ["limit", "limit is full"],
      ["backoff", "next attempt"],
      ["notYet", "sleeps"],
      ["afterSteps", "other steps"],
      ["children", "its children"],
      ["held", "earlier run"],
      ["expired", "run expired"],
      ["deadline", "deadline passed"],
      ["quarantined", "quarantined"],
      ["running", "it runs"],
    ],
  ],
  [
    "since",
    "Submitted",
    [
      ["1h", "in the last hour"],
      ["24h", "in the last day"],
      ["7d", "in the last week"],
    ],
  ],
];
const moreFields: Field[] = [
  ["error", "Error code", "card_declined"],
  ["step", "Open step", "charge"],
  ["agent", "Agent of the step", "payments"],
  ["current", "Current", same(["undone", "done", "unsure"])],
  ["desired", "Desired", same(["undone", "done"])],
  ["key", "Key", "order-1042"],
  ["parent", "Children of", "album-7/resize"],
  ["since", "Submitted from", aTime],
  ["until", "Submitted before", aTime],
  ["alert", "Alert", same(["parked", "approval", "undo", "restart", "waiting", "alert", "overdue", "output", "childTurned"])],
  ["order", "Order", [["oldest", "oldest first"]]],
];
const filterNames = [...new Set([...fields, ...moreFields].map(([name]) => name))];

/** What a field calls a word that it takes. */
const wordOf = ([, , words]: Field, value: string): string | undefined => (Array.isArray(words) ? words.find(([word]) => word === value)?.[1] : undefined);

/** The field that shows a filter: the one that has its value as a word, else the one for all values. */
function fieldOf({ name, value }: Filter): Field | undefined {
  const named = [...moreFields, ...fields].filter((field) => field[0] === name);
  return named.find((field) => wordOf(field, value) !== undefined) ?? named[0];
}

const titleOf = (filter: Filter): string => (filter.name === "label" ? "Label" : (fieldOf(filter)?.[1] ?? filter.name));

/** The value of a filter, in words. */
function valueText(filter: Filter): string {
  const field = fieldOf(filter);
  const word = field && wordOf(field, filter.value);
  const time = field?.[2] === aTime ? timeOf(filter.value) : undefined;
  return word ?? (time ? stamp(time, inUTC()) : filter.value);
}

const filterText = (filter: Filter) => `${titleOf(filter)}: ${valueText(filter)}`;

/** Whether a filter is set that only "More filters" shows. */
function hasMoreFilter(query: URLSearchParams): boolean {
  return moreFields.some(([name]) => {
    const value = query.get(name);
    return value && (name !== "since" || timeOf(value));
  });
}

/** The time of a filter; undefined: it is a duration before now. */
const timeOf = (value: string): Date | undefined => (/^\d{4}-/.test(value) && !Number.isNaN(Date.parse(value)) ? new Date(value) : undefined);

/** Whether the fields and chips have times in UTC, else in the time zone of this computer. */
const inUTC = () => timeStyle.value === "UTC";

/** A time as a field of a form has it. */
function inputText(value: string): string {
  const time = timeOf(value);
  return time ? minute(time, inUTC()) : "";
}

/** The time in a field, as the API reads it. A field that was not changed has the value of before. */
function timeText(input: HTMLInputElement, before: string): string | undefined {
  if (input.value === inputText(before)) return before || undefined;
  const time = new Date(input.value + (inUTC() && input.value ? "Z" : ""));
  return Number.isNaN(time.getTime()) || time.getUTCFullYear() < earliestYear ? undefined : time.toISOString().replace(/\.000Z$/, "Z");
}

/** A year before it is one that is being entered. */
const earliestYear = 1970;

interface Filter {
  name: string;
  value: string;
}

function activeFilters(query: URLSearchParams): Filter[] {
  const one = filterNames.flatMap((name) => (query.get(name) ? [{ name, value: query.get(name)! }] : []));
  return [...one, ...query.getAll("label").map((value) => ({ name: "label", value }))];
}

export function Jobs() {
  useTitle("Jobs");
  const filters = activeFilters(place.value.query);
  const query = { ...Object.fromEntries(filters.filter((f) => f.name !== "label").map((f) => [f.name, f.value])), label: filters.filter((f) => f.name === "label").map((f) => f.value) };
  return (
    <>
      <div class="title">
        <h1>Jobs</h1>
        <div class="end">
          <Views />
        </div>
      </div>
      <Filters />
      <List key={queryText(query)} query={query} filters={filters} />
    </>
  );
}

function Filters() {
  const { query } = place.value;
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        const form = event.currentTarget as HTMLFormElement;
        const change: Record<string, string | string[]> = {};
        for (const [name, , words] of [...fields, ...moreFields]) {
          if (typeof words === "string") change[name] = (form.elements.namedItem(name) as HTMLInputElement).value.trim();
          if (words === aTime) change[name] = timeText(form.querySelector(`input[name="${name}"]`)!, query.get(name) ?? "") ?? "";
        }
        const label = form.elements.namedItem("label") as HTMLInputElement;
        if (label.value.trim()) change.label = [...query.getAll("label"), label.value.trim()];
        label.value = "";
        setQuery({ ...change, ...searchFor(String(change.q ?? ""), change.label) });
      }}
    >
      {fields.map((field, i) => (
        <FilterField key={field[0]} field={field} first={i === 0} />
      ))}
      <button type="submit">Apply</button>
      <details class="more" open={hasMoreFilter(query)}>
        <summary>More filters</summary>
        <div class="filters">
          {moreFields.map((field) => (
            <FilterField key={field[0]} field={field} />
          ))}
          <label>
            Label
            <input name="label" placeholder="customer=c-77" autocomplete="off" spellcheck={false} />
          </label>
        </div>
      </details>
    </form>
  );
}

/** A search. NAME=VALUE is a filter for a label. */
function searchFor(text: string, labels: string | string[] = place.value.query.getAll("label")): Record<string, string | string[]> {
  return /^[^=\s]+=./.test(text) ? { q: "", label: [...new Set([...labels, text])] } : { q: text };
}

const searchHint = "Finds jobs whose key or id begins with the text, and jobs with a label of this value. Upper and lower case differ. NAME=VALUE finds a label.";

function FilterField({ field: [name, title, words], first }: { field: Field; first?: boolean }) {
  const value = place.value.query.get(name) ?? "";
  const set = (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) => {
    const text = event.currentTarget.value.trim();
    if (name !== "q") return setQuery({ [name]: text });
    const change = searchFor(text);
    event.currentTarget.value = String(change.q);
    setQuery(change);
  };
  return (
    <label>
      {title}
      {words === aTime && ` (${zoneName(timeOf(value) ?? new Date(now.peek()), inUTC())})`}
      {words === aTime ? (
        <input name={name} type="datetime-local" value={inputText(value)} onBlur={(event) => event.currentTarget.value !== inputText(value) && setQuery({ [name]: timeText(event.currentTarget, value) })} />
      ) : typeof words === "string" ? (
        <input name={name} value={value} placeholder={words} autocomplete="off" spellcheck={false} data-filter={first ? "" : undefined} title={name === "q" ? searchHint : undefined} onChange={set} />
      ) : (
        <select name={name} value={value} onChange={set}>
          <option value="">{name === "order" ? "newest first" : "any"}</option>
          {words.map(([word, text]) => (
            <option key={word} value={word}>
              {text}
            </option>
          ))}
          {value && wordOf([name, title, words], value) === undefined && <option value={value}>{`${name === "since" ? "from " : ""}${valueText({ name, value })}`}</option>}
        </select>
      )}
    </label>
  );
}

function Chips({ filters }: { filters: Filter[] }) {
  return (
    <div class="chips">
      {filters.map((f) => (
        <span class="chip" key={f.name + f.value}>
          <bdi title={f.value}>{filterText(f)}</bdi>
          <button type="button" class="bare" aria-label={`Remove the filter ${filterText(f)}`} onClick={() => removeFilter(f)}>
            <Icon name="close" />
          </button>
        </span>
      ))}
    </div>
  );
}

function removeFilter(f: Filter): void {
  setQuery({ [f.name]: f.name === "label" ? place.value.query.getAll("label").filter((value) => value !== f.value) : undefined });
}

function List({ query, filters }: { query: Record<string, string | string[]>; filters: Filter[] }) {
  const url = callUrl(["v1", "jobs"], queryText({ ...query, with: "summary", count: "true", limit: String(pageSize) }));
  const first = useLiveList<Job, PageJob>(url);
  const older = useOlder<Job, PageJob>(first.shown, (cursor) => callUrl(["v1", "jobs"], queryText({ ...query, with: "summary", limit: String(pageSize), cursor })));
  const { last } = older;
  const jobs = older.items.length > 0 ? [...first.rows, ...older.items] : first.rows;

  const startAgain = () => {
    older.forget();
    first.again();
    window.scrollTo(0, 0);
  };

  const refused = first.problem && <ProblemNote problem={first.problem} again={startAgain} />;
  if (!first.shown) {
    return (
      <>
        {filters.length > 0 && <Chips filters={filters} />}
        {refused ?? (
          <div class="box">
            <Waiting />
          </div>
        )}
      </>
    );
  }
  if (jobs.length === 0 && !last?.nextCursor) return filters.length > 0 ? <NoMatch filters={filters} /> : <FirstJob />;
  return (
    <>
      {filters.length > 0 && <Chips filters={filters} />}
      {refused}
      <BulkBar jobs={jobs} query={query} count={first.latest?.count} done={first.again} />
      <div class="box data">
        <Newer list={first} noun="job" show={startAgain}>
          {countText(jobs.length, first.latest)}
        </Newer>
        <table>
          <thead>
            <tr>
              <SelectAll jobs={jobs} />
              <th class="w-state">State</th>
              <th>Job</th>
              <th class="w-name c2">Type</th>
              <th class="w-name c4">Current → desired</th>
              <th class="w-num num c3">Steps</th>
              <th class="w-why c2">Why</th>
              <th class="w-time">Submitted</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <JobRow key={job.id} job={job} gone={first.gone.has(job.id)} />
            ))}
          </tbody>
        </table>
        <div class="below">
          {last?.nextCursor && jobs.length < mostRows && (
            <button type="button" onClick={older.more} disabled={older.loading}>
              {older.loading ? "Loading …" : last.scannedBackTo ? "Continue the search" : "More"}
            </button>
          )}
          <span class="muted small">
            {countText(jobs.length, first.latest)}
            {jobs.length < mostRows ? "" : ". The page shows no more: narrow the filters."}
            {last?.scannedBackTo && (
              <>
                . Searched as far as <Ago at={last.scannedBackTo} />
              </>
            )}
          </span>
          {first.live ? <span class="muted small">live</span> : <AsOf at={first.at} />}
          {older.problem && <ProblemNote problem={older.problem} />}
        </div>
      </div>
    </>
  );
}

/** How many jobs are shown, and of how many. */
function countText(shown: number, page: PageJob | undefined): string {
  const count = page?.count;
  if (!count || (count.n <= shown && !(count.capped && page.nextCursor))) return plural(shown, "job");
  if (count.n <= shown) return `${shown} or more jobs`;
  return `${shown} of ${count.n.toLocaleString("en")}${count.capped ? " or more" : ""} jobs`;
}

function JobRow({ job, gone }: { job: Job; gone: boolean }) {
  const name = job.key ?? job.id;
  const steps = job.summary;
  return (
    <tr>
      <SelectRow job={job} />
      <td>{gone ? <span class="muted">no longer matches</span> : <State mark={jobMark(job)} />}</td>
      <td>
        <a data-row data-job={job.id} href={link.job(job.id)} title={job.key ? `${job.key} (${job.id})` : job.id}>
          <bdi>{name}</bdi>
        </a>
        <div class="under">
          {steps?.why ? (
            <>
              <bdi>{steps.step}</bdi>: <bdi>{steps.why.text}</bdi>
            </>
          ) : (
            <bdi>{job.type}</bdi>
          )}
        </div>
      </td>
      <td class="c2" title={job.type}>
        <bdi>{job.type}</bdi>
      </td>
      <td class="c4 muted">
        <bdi>{stateName(job, job.current)}</bdi> → <bdi>{stateName(job, job.desired)}</bdi>
      </td>
      <td class="num c3" title={`${plural(job.unsettled, "step")} unsettled`}>{steps ? `${steps.settled}/${steps.steps}` : "–"}</td>
      <td class="c2" title={steps?.why ? `${steps.step}: ${steps.why.text}` : undefined}>
        {steps?.why && (
          <>
            <bdi>{steps.step}</bdi>: <bdi class="muted">{steps.why.text}</bdi>
          </>
        )}
      </td>
      <td>
        <Ago at={job.submittedAt} />
      </td>
    </tr>
  );
}

function NoMatch({ filters }: { filters: Filter[] }) {
  return (
    <div class="box empty">
      <h2>No job matches</h2>
      <p class="muted">Remove a filter to see more jobs.</p>
      <Chips filters={filters} />
      {filters.length > 1 && (
        <button type="button" onClick={() => setQuery(Object.fromEntries(filters.map((f) => [f.name, undefined])))}>
          Remove all filters
        </button>
      )}
    </div>
  );
}
