// Bulk acts: their list, and one of them. A node carries a bulk act out; the page only shows how far it is.
import { useSignal } from "@preact/signals";
import { needs } from "../access.ts";
import { titles, type Verb } from "../act.tsx";
import { call, callUrl, Problem, serverAddress } from "../api.ts";
import { atLeast, countWords } from "../bulk.tsx";
import { authorHeaders } from "../form.tsx";
import { ListBox } from "../listbox.tsx";
import { useLoad } from "../load.ts";
import { place } from "../place.ts";
import { link, queryText, type Query } from "../router.ts";
import { unknownMark, type Mark } from "../state.ts";
import type { Bulk, PageBulk, PageBulkRefusal, PageJob } from "../types.ts";
import { Ago, AsOf, Copy, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

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
      <ListBox
        list={list}
        none={
          <>
            <h2>There are no bulk acts</h2>
            <p class="muted">Select jobs in the list, or use filter flags of a command, to act on many jobs at once:</p>
            <pre>perdure resume --type order --error card_declined --reason 'the bank is back' --server {serverAddress}</pre>
            <a class="button" href={link.jobs()}>
              Jobs
            </a>
          </>
        }
        head={
          <>
            <th class="w-state">State</th>
            <th>Act</th>
            <th class="w-name c3">By</th>
            <th class="w-why c2">Reason</th>
            <th class="w-num num">Jobs</th>
            <th class="w-num num c2">Refused</th>
            <th class="w-time">Started</th>
          </>
        }
        row={(bulk) => (
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
        )}
        note={() => "A bulk act is kept for 90 days after its end."}
      />
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
            <button type="button" {...needs("act")} onClick={() => void change("stop")}>
              Stop
            </button>
          )}
          {bulk.state === "stopped" && (
            <button type="button" class="main" {...needs("act")} onClick={() => void change("resume")}>
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
          {bulk.perSecond && [
            <dt key="p">per second</dt>,
            <dd key="pn">at most {n(bulk.perSecond)}</dd>,
          ]}
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
