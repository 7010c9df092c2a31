// The history of a job: failures and acts, the oldest or the newest first.
import { titles } from "./act.tsx";
import { mostHistory, useHistory } from "./paged.ts";
import { place, setQuery } from "./place.ts";
import { link } from "./router.ts";
import { unknownMark, type Mark } from "./state.ts";
import type { Entry, Job } from "./types.ts";
import { Ago, ProblemNote, State, Waiting } from "./widgets.tsx";

/** Events with a sign and colour of their own; others are shown by their name. */
const events: Record<string, Partial<Mark>> = {
  failed: { sign: "↻", tone: "warn" },
  rejected: { sign: "×", tone: "bad" },
  expired: { sign: "⌛", tone: "warn" },
  returned: { sign: "↩", tone: "calm" },
  park: { sign: "■", word: "parked", tone: "bad" },
  parked: { sign: "■", tone: "bad" },
  undo: { sign: "↺", tone: "warn" },
  restart: { sign: "↺", tone: "warn" },
  redo: { sign: "↻", tone: "busy" },
  resume: { sign: "▸", tone: "busy" },
  settle: { sign: "✓", word: "settled", tone: "good" },
  stop: { sign: "■", word: "stopped", tone: "warn" },
  skip: { sign: "–", word: "skipped", tone: "calm" },
  edit: { sign: "✎", word: "edited", tone: "calm" },
  approve: { sign: "✓", word: "approved", tone: "good" },
  reject: { sign: "×", word: "rejected", tone: "bad" },
  signal: { sign: "▸", tone: "good" },
  giveUp: { sign: "×", word: "given up", tone: "bad" },
};

export function eventMark(event: string): Mark {
  return { ...unknownMark(event), sign: "·", ...(Object.hasOwn(events, event) ? events[event] : {}) };
}

const failures = ["failed", "rejected", "expired"];

/** What the list of entries can be narrowed to. */
const kinds: [name: string, title: string, is: (entry: Entry) => boolean][] = [
  ["failures", "failed runs", (entry) => failures.includes(entry.event)],
  ["acts", "acts of operators", (entry) => Object.hasOwn(titles, entry.event) && entry.author !== "policy"],
];

/** A process that reports runs is its holder; the rules of the definition act as "policy". */
function authorText(author: string | undefined): string {
  if (!author) return "";
  return author === "policy" ? "definition" : author.replace(/^@/, "");
}

export function History({ job }: { job: Job }) {
  const { query } = place.value;
  const newest = query.get("newest") === "true";
  const step = query.get("of") ?? "";
  const only = query.get("only") ?? "";
  const { items: all, more, loaded, problem, again, next } = useHistory(job, newest); // the newest entries are on the last page
  if (!loaded) {
    return problem ? (
      <ProblemNote problem={problem} again={again} />
    ) : (
      <div class="box">
        <Waiting />
      </div>
    );
  }
  const wanted = kinds.find(([name]) => name === only)?.[2] ?? (() => true);
  const shown = all.filter((entry) => (!step || entry.step === step) && wanted(entry));
  const entries = newest ? shown.toReversed() : shown;
  if (all.length === 0) {
    return (
      <div class="box empty">
        <h2>Nothing has been recorded</h2>
        <p class="muted">The history has failures and acts. A step that succeeds at once leaves no entry.</p>
      </div>
    );
  }
  return (
    <div class="box">
      <div class="steps-filter">
        <label>
          <input type="checkbox" checked={newest} onChange={(event) => setQuery({ newest: event.currentTarget.checked ? "true" : undefined })} /> newest first
        </label>
        <select aria-label="Kind of entries" value={only} onChange={(event) => setQuery({ only: event.currentTarget.value })}>
          <option value="">all entries</option>
          {kinds.map(([name, title]) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
        <select aria-label="Step" value={step} onChange={(event) => setQuery({ of: event.currentTarget.value })}>
          <option value="">all steps</option>
          {[...new Set([...all.flatMap((entry) => (entry.step ? [entry.step] : [])), ...(step ? [step] : [])])].sort().map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <span class="muted small">
          {entries.length} of {all.length} {all.length === 1 ? "entry" : "entries"}
          {more && " loaded"}
        </span>
      </div>
      {newest && more && all.length >= mostHistory && <p class="fine">The history is very long: these are its first {mostHistory} entries, and not the newest. The command <code>perdure history {job.id}</code> prints all.</p>}
      <table>
        <thead>
          <tr>
            <th class="w-time">Time</th>
            <th class="w-state">Event</th>
            <th class="w-name c2">Step</th>
            <th>Detail</th>
            <th class="w-name c3">By</th>
          </tr>
        </thead>
        <tbody>
          {entries.length === 0 && (
            <tr>
              <td colSpan={2} class="muted">
                No entry matches.
              </td>
            </tr>
          )}
          {entries.map((entry, i) => (
            <tr key={i}>
              <td>
                <Ago at={entry.at} />
              </td>
              <td>
                <State mark={eventMark(entry.event)} />
              </td>
              <td class="c2 text">
                <StepOf entry={entry} />
              </td>
              <td class="text">
                <div class="under">
                  <StepOf entry={entry} />
                </div>
                <Detail text={entry.detail ?? ""} />
              </td>
              <td class="c3" title={authorText(entry.author)}>
                <bdi class="muted">{authorText(entry.author)}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {(more || problem) && (
        <div class="below">
          {more && all.length < mostHistory && !newest && (
            <button type="button" onClick={next}>
              More
            </button>
          )}
          {more && all.length >= mostHistory && <span class="muted small">The page shows no more entries. The command perdure history has all.</span>}
          {problem && <ProblemNote problem={problem} again={again} />}
        </div>
      )}
    </div>
  );
}

function StepOf({ entry }: { entry: Entry }) {
  if (!entry.step) return <span class="muted">the job</span>;
  return (
    <>
      <a href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), step: entry.step })}>
        <bdi>{entry.step}</bdi>
      </a>
      {!!entry.run && <span class="muted small"> run {entry.run}</span>}
    </>
  );
}

/** A detail that begins with an error code shows it as one. */
function Detail({ text }: { text: string }) {
  const code = /^([A-Za-z][\w.-]{0,60}): /.exec(text)?.[1];
  if (!code) return <bdi class="said">{text}</bdi>;
  return (
    <bdi class="said">
      <code>{code}</code>: {text.slice(code.length + 2)}
    </bdi>
  );
}
