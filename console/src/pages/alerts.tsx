// Alerts, newest first, in groups by type, step and error code.
import { callUrl } from "../api.ts";
import { grouped } from "../groups.ts";
import { useLiveList } from "../live.ts";
import { useOlder } from "../older.ts";
import { place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { alertMark } from "../state.ts";
import type { Alert, PageAlert } from "../types.ts";
import { Ago, AsOf, Count, Icon, Newer, nouns, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

/** How many alerts the header and the overview count; more are shown as this number and a plus sign. */
export const mostAlertsCounted = 99;

const pageSize = 100;
const mostRows = 1000;
const filterNames = ["kind", "type", "step", "code", "job"] as const;

export function Alerts() {
  useTitle("Alerts");
  const { query } = place.value;
  const closed = query.get("closed") === "true";
  const filters = filterNames.flatMap((name) => (query.get(name) ? [{ name, value: query.get(name)! }] : []));
  const wanted = queryText({ ...Object.fromEntries(filters.map((f) => [f.name, f.value])), closed: closed ? "true" : undefined, limit: String(pageSize) });
  return (
    <>
      <div class="title">
        <h1>Alerts</h1>
        <div class="end">
          <label>
            <input type="checkbox" data-filter="" checked={closed} onChange={(event) => setQuery({ closed: event.currentTarget.checked ? "true" : undefined })} />
            closed ones too
          </label>
        </div>
      </div>
      {filters.length > 0 && (
        <div class="chips">
          {filters.map((f) => (
            <span class="chip" key={f.name}>
              <bdi title={f.value}>
                {f.name}: {f.value}
              </bdi>
              <button type="button" class="bare" aria-label={`Remove the filter ${f.name}: ${f.value}`} onClick={() => setQuery({ [f.name]: undefined })}>
                <Icon name="close" />
              </button>
            </span>
          ))}
        </div>
      )}
      <List key={wanted} query={wanted} closed={closed} filtered={filters.length > 0} />
    </>
  );
}

function List({ query, closed, filtered }: { query: string; closed: boolean; filtered: boolean }) {
  const first = useLiveList<Alert, PageAlert>(callUrl(["v1", "alerts"], query));
  const older = useOlder<Alert, PageAlert>(first.shown, (cursor) => callUrl(["v1", "alerts"], `${query}&cursor=${encodeURIComponent(cursor)}`));
  const startAgain = () => {
    older.forget();
    first.again();
  };
  const alerts = [...first.rows, ...older.items];
  const refused = first.problem && <ProblemNote problem={first.problem} again={startAgain} />;
  if (!first.shown) {
    return (
      refused ?? (
        <div class="box">
          <Waiting />
        </div>
      )
    );
  }
  const total = plural(alerts.length, "alert") + (older.nextCursor ? ", and more that are older" : "");
  return (
    <>
      {refused}
      {alerts.length > 0 && !closed && <Groups alerts={alerts} gone={first.gone} more={!!older.nextCursor} />}
      <div class="box data">
        {alerts.length > 0 && (
          <Newer list={first} noun="alert" show={startAgain}>
            {total}
          </Newer>
        )}
        {alerts.length === 0 ? (
          <div class="empty">
            <h2>{filtered ? "No alert matches" : closed ? "There are no alerts" : "There are no open alerts"}</h2>
            <p class="muted">An alert is raised when a step needs an operator, or when the rules of a definition ask for one.</p>
          </div>
        ) : (
          <AlertTable alerts={alerts} gone={first.gone} />
        )}
        {alerts.length > 0 && (
          <div class="below">
            {older.nextCursor && alerts.length < mostRows && (
              <button type="button" onClick={older.more} disabled={older.loading}>
                {older.loading ? "Loading …" : "More"}
              </button>
            )}
            <span class="muted small">{total}</span>
            {first.live ? <span class="muted small">live</span> : <AsOf at={first.at} />}
            {older.problem && <ProblemNote problem={older.problem} />}
          </div>
        )}
      </div>
    </>
  );
}

function Groups({ alerts, gone, more }: { alerts: Alert[]; gone: ReadonlySet<string>; more: boolean }) {
  return (
    <div class="box data">
      <table aria-label="Groups of alerts">
        <thead>
          <tr>
            <th class="w-state w-alert">Alert</th>
            <th>Type / step</th>
            <th class="w-name">Error code</th>
            <th class="w-num num">Alerts</th>
            <th class="w-num num c3">Attempts</th>
            <th class="w-time c2">Oldest</th>
            <th class="w-num c2">Jobs</th>
          </tr>
        </thead>
        <tbody>
          {grouped(alerts, gone).map((g) => (
            <tr key={JSON.stringify([g.kind, g.type, g.step, g.code])}>
              <td>
                <State mark={alertMark(g.kind)} />
              </td>
              <td>
                <bdi>{g.type ?? "the store"}</bdi>
                {g.step && (
                  <>
                    {" / "}
                    <bdi>{g.step}</bdi>
                  </>
                )}
              </td>
              <td>{g.code ? <bdi>{g.code}</bdi> : "–"}</td>
              <td class="num">
                <Count n={{ n: g.count, capped: more }} to={link.alerts({ kind: g.kind, type: g.type, step: g.step, code: g.code })} what={`${nouns(g.count, "alert")} of this group`} />
              </td>
              <td class="num c3">{g.attempts || "–"}</td>
              <td class="c2">
                <Ago at={g.oldest} />
              </td>
              <td class="c2">{g.type && <a href={link.jobs({ type: g.type, step: g.step, error: g.code, alert: g.kind })}>jobs</a>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Whether the name of an alert is that of a receiver, which has a page, or the URL that a definition names. */
const isReceiver = (name: string) => !name.includes("://");

function AlertTable({ alerts, gone }: { alerts: Alert[]; gone: ReadonlySet<string> }) {
  return (
    <table>
      <thead>
        <tr>
          <th class="w-state w-alert">Alert</th>
          <th class="w-name">Step</th>
          <th class="c2">Message</th>
          <th class="w-name c2">Job</th>
          <th class="w-time">Raised</th>
        </tr>
      </thead>
      <tbody>
        {alerts.map((alert) => (
          <tr key={String(alert.id)}>
            <td>
              <State mark={alert.closedAt || gone.has(String(alert.id)) ? { ...alertMark(alert.kind), tone: "calm" } : alertMark(alert.kind)} />
              {(alert.closedAt || gone.has(String(alert.id))) && <div class="muted small">{alert.closedAt ? "closed" : "no longer open"}</div>}
            </td>
            <td>
              {alert.job ? (
                <a data-row href={link.job(alert.job, { step: alert.step })} title={alert.job}>
                  <bdi>{alert.step || "the job"}</bdi>
                </a>
              ) : alert.kind === "undelivered" && alert.name && isReceiver(alert.name) ? (
                <a data-row href={link.webhooks(alert.name)} title={alert.name}>
                  <bdi>{alert.name}</bdi>
                </a>
              ) : (
                <span class="muted">the store</span>
              )}
              <div class="under" title={alert.message}>
                {alert.job && (
                  <>
                    <bdi>{alert.jobKey ?? alert.job}</bdi>:{" "}
                  </>
                )}
                <bdi>{alert.message}</bdi>
              </div>
            </td>
            <td class="c2 text" title={alert.message}>
              <bdi class="said clamp">{alert.message}</bdi>
              {alert.closedAt && (
                <div class="muted small">
                  closed <Ago at={alert.closedAt} /> by <bdi>{alert.closedBy}</bdi>
                </div>
              )}
            </td>
            <td class="c2" title={alert.job}>
              {alert.job ? (
                <a href={link.job(alert.job)}>
                  <bdi>{alert.jobKey ?? alert.job}</bdi>
                </a>
              ) : (
                "–"
              )}
              {alert.type && (
                <div class="muted small">
                  <bdi>{alert.type}</bdi>
                </div>
              )}
            </td>
            <td>
              <Ago at={alert.raisedAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
