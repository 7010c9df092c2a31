// The hosts of the grid, and one of them with its runs.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { needs } from "../access.ts";
import { requiresText } from "../amounts.ts";
import { callUrl } from "../api.ts";
import { Labels, hostMark, hostStates, Uses } from "../host.tsx";
import { Drain, Ready, Remove, whyKept, type HostAct } from "../hostdialogs.tsx";
import { useLoad } from "../load.ts";
import { useOlder } from "../older.ts";
import { place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { span } from "../time.ts";
import type { Host, HostRun, PageHost } from "../types.ts";
import { Ago, AsOf, Copy, Icon, now, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

const every = 3000;
const pageSize = 500;
/** How many amounts and labels of a host its row has. */
const mostInRow = 3;

/** The list of hosts, or one of them. */
export function HostPages() {
  const { job: name } = place.value;
  return name ? <OneHost key={name} name={name} /> : <Hosts />;
}

const labelLink = (label: string) => link.hosts({ label });

function Hosts() {
  useTitle("Hosts");
  const { query } = place.value;
  const [grid, state, label, q] = ["grid", "state", "label", "q"].map((name) => query.get(name) ?? "") as [string, string, string, string];
  const url = (cursor?: string) => callUrl(["v1", "hosts"], queryText({ grid, state, label, limit: String(pageSize), cursor }));
  return (
    <>
      <Filters grid={grid} state={state} label={label} q={q} />
      <List key={url()} url={url} filtered={Boolean(grid || state || label)} q={q} />
    </>
  );
}

function Filters({ grid, state, label, q }: { grid: string; state: string; label: string; q: string }) {
  return (
    <>
      <div class="title">
        <h1>Hosts</h1>
      </div>
      <form
        class="filters"
        aria-label="Filters"
        onSubmit={(event) => {
          event.preventDefault();
          const form = event.currentTarget as HTMLFormElement;
          setQuery(Object.fromEntries(["grid", "label"].map((name) => [name, (form.elements.namedItem(name) as HTMLInputElement).value.trim()])));
        }}
      >
        <label>
          Find
          <input name="q" data-filter="" value={q} placeholder="part of a name or label" autocomplete="off" spellcheck={false} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        </label>
        <label>
          State
          <select name="state" value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
            <option value="">all</option>
            {hostStates.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
            {state && !hostStates.includes(state) && <option value={state}>{state}</option>}
          </select>
        </label>
        <label>
          Grid
          <input name="grid" value={grid} placeholder="slurm" autocomplete="off" spellcheck={false} maxLength={64} onChange={(event) => setQuery({ grid: event.currentTarget.value.trim() })} />
        </label>
        <label>
          Label
          <input name="label" value={label} placeholder="zone=a" autocomplete="off" spellcheck={false} maxLength={129} onChange={(event) => setQuery({ label: event.currentTarget.value.trim() })} />
        </label>
        <button type="submit">Apply</button>
      </form>
    </>
  );
}

function matches(host: Host, q: string): boolean {
  const text = q.trim().toLowerCase();
  return !text || host.name.toLowerCase().includes(text) || Object.entries(host.labels ?? {}).some(([name, value]) => `${name}=${value}`.toLowerCase().includes(text));
}

function List({ url, filtered, q }: { url: (cursor?: string) => string; filtered: boolean; q: string }) {
  const first = useLoad<PageHost>(url(), every);
  const older = useOlder<Host, PageHost>(first.data, url);
  const loaded = [...(first.data?.items ?? []), ...older.items];
  const searches = q.trim() !== "";
  // The server does not search names: the page loads all hosts while something is searched.
  useEffect(() => {
    if (searches && older.nextCursor && !older.loading && !older.problem) void older.more();
  }, [searches, older.nextCursor, older.loading, older.problem]);
  if (!first.data) {
    return first.problem ? (
      <ProblemNote problem={first.problem} again={first.again} />
    ) : (
      <div class="box">
        <Waiting />
      </div>
    );
  }
  const hosts = loaded.filter((host) => matches(host, q));
  const counts = [...new Set([...hostStates, ...hosts.map((host) => host.state)])].map((state) => ({ state, n: hosts.filter((host) => host.state === state).length }));
  const more = older.nextCursor !== undefined;
  return (
    <>
      {first.problem && <ProblemNote problem={first.problem} again={first.again} />}
      {loaded.length === 0 && !filtered ? (
        <div class="box empty data">
          <h2>There are no hosts</h2>
          <p class="muted">
            A host is a machine, a container or a gateway that runs commands of steps. Its process registers it; steps say in <code>requires</code> what they need of one.
          </p>
          <pre>perdure host --state /var/lib/perdure-host --server {new URL("../", document.baseURI).href.replace(/\/$/, "")}</pre>
        </div>
      ) : hosts.length === 0 ? (
        <div class="box empty data">
          <h2>{older.loading ? "Searching …" : "No host matches"}</h2>
          <div class="buttons">
            <button type="button" onClick={() => setQuery({ q: undefined, grid: undefined, state: undefined, label: undefined })}>
              Remove the filters
            </button>
          </div>
        </div>
      ) : (
        <div class="box data">
          <div class="announce">
            <span class="totals small" role="status">
              <span>
                {plural(hosts.length, "host")}
                {more && " or more"}
              </span>
              {counts.map(
                ({ state, n }) =>
                  n > 0 && (
                    <a key={state} href={link.hosts({ ...Object.fromEntries(place.value.query), state })}>
                      {n} {state}
                    </a>
                  ),
              )}
              <span>{plural(hosts.reduce((sum, host) => sum + host.runs, 0), "run")}</span>
            </span>
          </div>
          <table>
            <thead>
              <tr>
                <th>Host</th>
                <th class="w-state">State</th>
                <th class="w-grid c4">Grid</th>
                <th class="w-labels c3">Labels</th>
                <th class="w-uses c2">In use</th>
                <th class="w-num num">Runs</th>
                <th class="w-time c2">Seen</th>
              </tr>
            </thead>
            <tbody>
              {hosts.map((host) => (
                <HostRow key={host.name} host={host} />
              ))}
            </tbody>
          </table>
          <div class="below">
            {more && (
              <button type="button" onClick={older.more} disabled={older.loading}>
                {older.loading ? "Loading …" : "More"}
              </button>
            )}
            <span class="muted small">
              {older.items.length > 0 ? `The first ${pageSize} hosts are followed; the others are as they were when they were loaded. ` : ""}A host that has not registered again in time is silent.
            </span>
            <AsOf at={first.at} />
            {older.problem && <ProblemNote problem={older.problem} again={older.more} />}
          </div>
        </div>
      )}
    </>
  );
}

function HostRow({ host }: { host: Host }) {
  return (
    <tr>
      <td>
        <a data-row href={link.hosts({}, host.name)} title={host.name}>
          <bdi>{host.name}</bdi>
        </a>
        <div class="under">
          {host.grid && (
            <>
              grid <bdi>{host.grid}</bdi>,{" "}
            </>
          )}
          seen <Ago at={host.seenAt} />
        </div>
      </td>
      <td>
        <State mark={hostMark(host)} />
      </td>
      <td class="c4" title={host.grid}>
        {host.grid ? (
          <a href={link.hosts({ grid: host.grid })}>
            <bdi>{host.grid}</bdi>
          </a>
        ) : (
          <span class="muted">–</span>
        )}
      </td>
      <td class="c3 text">
        <Labels labels={host.labels} to={labelLink} most={mostInRow} />
      </td>
      <td class="c2 text">
        <Uses host={host} most={mostInRow} />
      </td>
      <td class="num">{host.runs >= mostRuns ? `${mostRuns}+` : host.runs || <span class="muted">–</span>}</td>
      <td class="c2">
        <Ago at={host.seenAt} />
      </td>
    </tr>
  );
}

/** The API counts and lists the runs of a host up to this number. */
const mostRuns = 1000;

function OneHost({ name }: { name: string }) {
  const page = useLoad<Host>(callUrl(["v1", "hosts", name]), every);
  const act = useSignal<HostAct | undefined>(undefined);
  useTitle(`Host ${name}`);
  const host = page.data;
  const all = (
    <a class="button" href={link.hosts()}>
      All hosts
    </a>
  );
  if (!host || page.problem?.status === 404) {
    if (!page.problem) {
      return (
        <div class="box">
          <Waiting />
        </div>
      );
    }
    if (page.problem.status !== 404) return <ProblemNote problem={page.problem} again={page.again} />;
    return (
      <div class="box empty">
        <h1>There is no such host</h1>
        <p class="muted">
          <bdi>{page.problem.message}</bdi>
        </p>
        {all}
      </div>
    );
  }
  const close = () => (act.value = undefined);
  const dialog = { host, close, done: page.again };
  const kept = whyKept(host);
  const remove = needs("act", kept !== "");
  return (
    <>
      <div class="title">
        <h1 class="cut">
          Host <bdi>{host.name}</bdi>
        </h1>
        <State mark={hostMark(host)} pill />
        <div class="end">
          {host.drain ? (
            <button type="button" {...needs("act")} onClick={() => (act.value = "ready")}>
              Ready …
            </button>
          ) : (
            <button type="button" {...needs("act")} onClick={() => (act.value = "drain")}>
              Drain …
            </button>
          )}
          <button type="button" {...remove} title={remove.title ?? (kept || undefined)} onClick={() => (act.value = "delete")}>
            Remove …
          </button>
          {all}
        </div>
      </div>
      {page.problem && <ProblemNote problem={page.problem} again={page.again} />}
      <Trouble host={host} />
      <div class="split data">
        <Runs host={host} />
        <Facts host={host} />
      </div>
      <AsOf at={page.at} />
      {act.value === "drain" && <Drain {...dialog} />}
      {act.value === "ready" && <Ready {...dialog} />}
      {act.value === "delete" && <Remove {...dialog} />}
    </>
  );
}

/** Why a host gets no runs. */
function Trouble({ host }: { host: Host }) {
  const { drain } = host;
  if (host.state !== "silent" && !drain) return null;
  return (
    <div class={`note ${host.state === "silent" ? "bad" : "warn"}`}>
      <Icon name="warn" />
      <div class="body">
        {host.state === "silent" && (
          <p>
            The host has not registered again since <Ago at={host.seenAt} />; it promises to do so every {host.heartbeat ?? "1m"}.{host.runs > 0 && " Its runs expire if it does not come back in time."}
          </p>
        )}
        {drain && (
          <p>
            {host.state === "drained" ? "The host is drained" : host.state === "silent" ? "It is to be drained" : "The host is being drained"}
            {drain.author && (
              <>
                {" "}
                by <bdi>{drain.author}</bdi>
              </>
            )}
            {drain.reason && (
              <>
                : <bdi>{drain.reason}</bdi>
              </>
            )}
            .{host.runs > 0 && (
              <>
                {" "}
                Its runs are stopped <Ago at={drain.by} />.
              </>
            )}
          </p>
        )}
      </div>
    </div>
  );
}

function Facts({ host }: { host: Host }) {
  return (
    <aside class="box panel" aria-label={`Details of ${host.name}`}>
      <header>
        <h2>In use</h2>
      </header>
      <div class="inner">
        <Uses host={host} />
        <dl class="pairs">
          <dt>grid</dt>
          <dd>{host.grid ? <bdi>{host.grid}</bdi> : <span class="muted">–</span>}</dd>
          <dt>labels</dt>
          <dd>
            <Labels labels={host.labels} to={labelLink} />
          </dd>
          <dt>seen</dt>
          <dd>
            <Ago at={host.seenAt} />, every {host.heartbeat ?? "1m"}
          </dd>
          <dt>registered</dt>
          <dd>
            <Ago at={host.registeredAt} />
          </dd>
          <dt>version</dt>
          <dd>{host.version ? <bdi>{host.version}</bdi> : <span class="muted">–</span>}</dd>
          <dt>incarnation</dt>
          <dd>
            <code>
              <bdi>{host.incarnation}</bdi>
            </code>
          </dd>
          <dt>boot</dt>
          <dd>
            {host.boot ? (
              <code>
                <bdi>{host.boot}</bdi>
              </code>
            ) : (
              <span class="muted">–</span>
            )}
          </dd>
          {host.reservation && (
            <>
              <dt title="A step for which the host is kept free">reserved for</dt>
              <dd>
                <a href={link.job(host.reservation.job, { step: host.reservation.step })}>
                  <bdi>{host.reservation.step}</bdi>
                </a>
                , since <Ago at={host.reservation.since} />, until <Ago at={host.reservation.until} />
              </dd>
            </>
          )}
          <dt>holder</dt>
          <dd>
            <code>
              <bdi>{host.holder}</bdi>
            </code>{" "}
            <Copy text={host.holder} what="the holder" />
          </dd>
        </dl>
      </div>
    </aside>
  );
}

function Runs({ host }: { host: Host }) {
  const runs = host.inFlight ?? [];
  return (
    <section class="box" aria-labelledby="runs">
      <header>
        <h2 id="runs">Runs in flight</h2>
        <span class="muted">{runs.length >= mostRuns ? `${mostRuns}+` : runs.length}</span>
      </header>
      {runs.length === 0 ? (
        <p class="fine">The host has no run.</p>
      ) : (
        <table aria-labelledby="runs">
          <thead>
            <tr>
              <th>Step</th>
              <th class="w-name c2">Job</th>
              <th class="w-grid c4">Agent</th>
              <th class="w-why c2">Takes</th>
              <th class="w-time">Running for</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <RunRow key={`${run.job} ${run.step}`} run={run} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function RunRow({ run }: { run: HostRun }) {
  const takes = requiresText(run.requires);
  return (
    <tr>
      <td>
        <a data-row href={link.job(run.job, { step: run.step })} title={run.step}>
          <bdi>{run.step}</bdi>
        </a>
        <div class="under">
          run {run.run}, <bdi>{takes}</bdi>
        </div>
      </td>
      <td class="c2" title={run.job}>
        <a href={link.job(run.job)}>
          <code>…{run.job.slice(-8)}</code>
        </a>
        <span class="muted"> run {run.run}</span>
      </td>
      <td class="c4" title={run.agent}>
        <bdi>{run.agent}</bdi>
      </td>
      <td class="c2" title={takes}>
        <bdi>{takes}</bdi>
      </td>
      <td title={run.startedAt}>{span(now.value - Date.parse(run.startedAt))}</td>
    </tr>
  );
}
