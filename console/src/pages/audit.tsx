// The audit log: who has done what, and what was refused. Only admins see this page. Its entries never change, so it is
// loaded once, and again when the user asks for it.
import { callUrl } from "../api.ts";
import { useLoad } from "../load.ts";
import { useOlder } from "../older.ts";
import { place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { unknownMark, type Mark } from "../state.ts";
import type { AuditEntry, PageAuditEntry } from "../types.ts";
import { Ago, AsOf, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

const pageSize = 100;
/** The most rows that the page keeps. */
const mostRows = 2000;

/** A filter: its name, its title, and an example. */
const fields: [name: string, title: string, example: string][] = [
  ["author", "Author", "anna"],
  ["act", "Act", "undo"],
  ["job", "Job", "order-1042"],
];
const times: [value: string, title: string][] = [
  ["", "any"],
  ["1h", "in the last hour"],
  ["24h", "in the last day"],
  ["7d", "in the last week"],
  ["30d", "in the last 30 days"],
];

export function Audit() {
  useTitle("Audit log");
  const { query } = place.value;
  const filter = Object.fromEntries([...fields.map(([name]) => name), "since"].map((name) => [name, query.get(name) ?? ""]));
  return (
    <>
      <div class="title">
        <h1>Audit log</h1>
        <div class="end">
          <a class="button" href={link.tokens()}>
            Tokens
          </a>
        </div>
      </div>
      <Filters />
      <List key={queryText(filter)} filter={filter} />
    </>
  );
}

function Filters() {
  const { query } = place.value;
  const since = query.get("since") ?? "";
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        const form = event.currentTarget as HTMLFormElement;
        setQuery(Object.fromEntries(fields.map(([name]) => [name, (form.elements.namedItem(name) as HTMLInputElement).value.trim()])));
      }}
    >
      {fields.map(([name, title, example], i) => (
        <label key={name}>
          {title}
          <input name={name} value={query.get(name) ?? ""} placeholder={example} autocomplete="off" spellcheck={false} data-filter={i === 0 ? "" : undefined} onChange={(event) => setQuery({ [name]: event.currentTarget.value.trim() })} />
        </label>
      ))}
      <label>
        Time
        <select name="since" value={since} onChange={(event) => setQuery({ since: event.currentTarget.value })}>
          {times.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
          {since && !times.some(([value]) => value === since) && <option value={since}>from {since}</option>}
        </select>
      </label>
      <button type="submit">Apply</button>
    </form>
  );
}

function List({ filter }: { filter: Record<string, string> }) {
  const url = (cursor?: string) => callUrl(["v1", "audit"], queryText({ ...filter, limit: String(pageSize), cursor }));
  const first = useLoad<PageAuditEntry>(url(), 0);
  const older = useOlder<AuditEntry, PageAuditEntry>(first.data, url);
  const entries = [...(first.data?.items ?? []), ...older.items];
  const again = () => {
    older.forget();
    first.again();
  };
  const refused = first.problem && <ProblemNote problem={first.problem} again={again} />;
  if (!first.data) {
    return (
      refused ?? (
        <div class="box">
          <Waiting />
        </div>
      )
    );
  }
  if (entries.length === 0) {
    return (
      <div class="box empty">
        <h2>{Object.values(filter).some(Boolean) ? "No entry matches" : "There are no entries"}</h2>
        <p class="muted">The audit log has acts, logins, changes of access, and requests that were refused. Entries are kept for 400 days.</p>
      </div>
    );
  }
  return (
    <>
      {refused}
      <div class="box data">
        <table>
          <thead>
            <tr>
              <th class="w-time">Time</th>
              <th class="w-name">Author</th>
              <th class="w-name">Act</th>
              <th class="c2">On</th>
              <th class="w-name c3">Reason</th>
              <th class="w-state c2">Outcome</th>
              <th class="w-name c4">From</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <EntryRow key={String(entry.id)} entry={entry} />
            ))}
          </tbody>
        </table>
        <div class="below">
          {older.nextCursor && entries.length < mostRows && (
            <button type="button" onClick={older.more} disabled={older.loading}>
              {older.loading ? "Loading …" : "More"}
            </button>
          )}
          <button type="button" onClick={again}>
            Load again
          </button>
          <span class="muted small">
            {entries.length === 1 ? "1 entry" : `${entries.length} entries`}
            {older.nextCursor && entries.length >= mostRows && ". The page shows no more: narrow the filters"}. As a command: <code>perdure audit</code>
          </span>
          <AsOf at={first.at} />
          {older.problem && <ProblemNote problem={older.problem} />}
        </div>
      </div>
    </>
  );
}

const outcomes: Record<string, Mark> = {
  done: { ...unknownMark("done"), sign: "✓", tone: "good" },
  refused: { ...unknownMark("refused"), sign: "×", tone: "bad" },
};

function EntryRow({ entry }: { entry: AuditEntry }) {
  const outcome = <State mark={{ ...(outcomes[entry.outcome] ?? unknownMark(entry.outcome)), detail: entry.code ?? "" }} />;
  const from = [entry.address, entry.via].filter(Boolean).join(", ");
  return (
    <tr>
      <td>
        <Ago at={entry.at} />
        <div class="under plain">{outcome}</div>
      </td>
      <td title={entry.author}>
        <bdi>{entry.author}</bdi>
        {entry.onBehalfOf && (
          <div class="muted small cut" title={entry.onBehalfOf}>
            for <bdi>{entry.onBehalfOf}</bdi>
          </div>
        )}
      </td>
      <td title={entry.act}>
        <bdi>{entry.act}</bdi>
        {entry.count !== undefined && entry.count > 1 && <div class="muted small">{plural(entry.count, "request")}</div>}
        <div class="under">
          <On entry={entry} />
        </div>
      </td>
      <td class="c2">
        <On entry={entry} />
      </td>
      <td class="c3" title={entry.reason}>
        <bdi>{entry.reason}</bdi>
      </td>
      <td class="c2">
        {outcome}
        {entry.code && <div class="muted small cut">{entry.code}</div>}
      </td>
      <td class="c4 muted" title={entry.credential ? `${from}; id of the token or session: ${entry.credential}` : from}>
        <bdi>{from}</bdi>
      </td>
    </tr>
  );
}

/** What an act was on: a job, a step of it, or something else. */
function On({ entry }: { entry: AuditEntry }) {
  return (
    <>
      {entry.job && (
        <a href={link.job(entry.job, entry.target && entry.outcome === "done" ? { step: entry.target } : {})} title={entry.job}>
          <bdi>{entry.job}</bdi>
        </a>
      )}
      {entry.job && entry.target && ", "}
      {entry.target && <bdi title={entry.target}>{entry.target}</bdi>}
    </>
  );
}
