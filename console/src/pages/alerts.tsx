// Open alerts, newest first.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, callUrl, Problem } from "../api.ts";
import { useLoad } from "../load.ts";
import { place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { alertMark } from "../state.ts";
import type { Alert, PageAlert } from "../types.ts";
import { Ago, AsOf, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

/** How many alerts the header and the overview count; more are shown as this number and a plus sign. */
export const mostAlertsCounted = 99;

const pageSize = 100;
const mostRows = 1000;
const loadEvery = 5000;

export function Alerts() {
  useTitle("Alerts");
  const closed = place.value.query.get("closed") === "true";
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
      <List key={String(closed)} closed={closed} />
    </>
  );
}

function List({ closed }: { closed: boolean }) {
  const query = { closed: closed ? "true" : undefined, limit: String(pageSize) };
  const first = useLoad<PageAlert>(callUrl(["v1", "alerts"], queryText(query)), loadEvery);
  const older = useSignal<Alert[]>([]);
  const cursor = useSignal<string | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  useEffect(() => {
    if (older.peek().length === 0) cursor.value = first.data?.nextCursor;
  }, [first.data]);
  const more = async () => {
    problem.value = undefined;
    try {
      const page = await call<PageAlert>(callUrl(["v1", "alerts"], queryText({ ...query, cursor: cursor.peek() })));
      older.value = [...older.peek(), ...page.items];
      cursor.value = page.nextCursor;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    }
  };
  if (!first.data) {
    return first.problem ? (
      <ProblemNote problem={first.problem} again={first.again} />
    ) : (
      <div class="box">
        <Waiting />
      </div>
    );
  }
  const seen = new Set<unknown>();
  const alerts = [...first.data.items, ...older.value].filter((a) => !seen.has(a.id) && seen.add(a.id));
  return (
    <>
      {first.problem && <ProblemNote problem={first.problem} again={first.again} />}
      <div class="box data">
        {alerts.length === 0 ? (
          <div class="empty">
            <h2>{closed ? "There are no alerts" : "There are no open alerts"}</h2>
            <p class="muted">An alert is raised when a step needs an operator, or when the rules of a definition ask for one.</p>
          </div>
        ) : (
          <AlertTable alerts={alerts} />
        )}
        {alerts.length > 0 && (
          <div class="below">
            {cursor.value && alerts.length < mostRows && (
              <button type="button" onClick={more}>
                More
              </button>
            )}
            <span class="muted small">
              {plural(alerts.length, "alert")}
              {cursor.value ? ", and more that are older" : ""}
            </span>
            <AsOf at={first.at} />
            {problem.value && <ProblemNote problem={problem.value} />}
          </div>
        )}
      </div>
    </>
  );
}

function AlertTable({ alerts }: { alerts: Alert[] }) {
  return (
    <table>
      <thead>
        <tr>
          <th class="w-state">Alert</th>
          <th class="w-name">Step</th>
          <th class="c2">Message</th>
          <th class="w-name c3">Job</th>
          <th class="w-time">Raised</th>
        </tr>
      </thead>
      <tbody>
        {alerts.map((alert) => (
          <tr key={String(alert.id)}>
            <td>
              <State mark={alertMark(alert.kind)} />
              {alert.closedAt && <div class="muted small">closed</div>}
            </td>
            <td>
              {alert.job ? (
                <a data-row href={link.job(alert.job, { step: alert.step })} title={alert.job}>
                  <bdi>{alert.step || "the job"}</bdi>
                </a>
              ) : (
                <span class="muted">the store</span>
              )}
              <div class="under" title={alert.message}>
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
            <td class="c3 mono" title={alert.job}>
              {alert.job ?? "–"}
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
