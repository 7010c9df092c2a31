// The overview: what needs an operator, what runs, and whether agents and nodes are there. Everything is a link.
import { callUrl } from "../api.ts";
import { useLoad } from "../load.ts";
import { link } from "../router.ts";
import { alertMark, jobMark } from "../state.ts";
import type { Alert, ListAgent, ListNode, PageAlert, PageJob } from "../types.ts";
import { mostAlertsCounted } from "./alerts.tsx";
import { Ago, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";
import { agentMark } from "./agents.tsx";
import { nodeMark } from "./nodes.tsx";

const mostLines = 8;

export function Overview() {
  useTitle("");
  const alerts = useLoad<PageAlert>(callUrl(["v1", "alerts"], `?limit=${mostAlertsCounted + 1}`), 5000);
  const jobs = useLoad<PageJob>(callUrl(["v1", "jobs"], `?limit=${mostLines}`), 5000);
  const agents = useLoad<ListAgent>(callUrl(["v1", "agents"]), 5000);
  const nodes = useLoad<ListNode>(callUrl(["v1", "nodes"]), 5000);
  const problem = alerts.problem ?? jobs.problem ?? agents.problem ?? nodes.problem;
  const groups = alerts.data && groupAlerts(alerts.data.items);
  return (
    <>
      <div class="title">
        <h1>Overview</h1>
      </div>
      {problem && <ProblemNote problem={problem} />}
      <div class="cards data">
        <div class="stack">
        <section class="box">
          <header>
            <h2>Needs an operator</h2>
            <a class="end" href={link.alerts()}>
              All alerts
            </a>
          </header>
          {!groups ? (
            !alerts.problem && <Waiting />
          ) : groups.length === 0 ? (
            <p class="fine">Nothing: there are no open alerts.</p>
          ) : (
            <ul class="lines">
              {groups.slice(0, mostLines).map((group) => (
                <li key={group.key}>
                  <State mark={alertMark(group.newest.kind)} />
                  <span class="what">
                    <a href={group.n === 1 && group.newest.job ? link.job(group.newest.job, { step: group.newest.step }) : link.alerts()}>
                      <bdi>{group.newest.step || (group.newest.job ? "job" : "store")}</bdi>
                    </a>{" "}
                    <bdi class="muted" title={group.newest.message}>
                      {group.newest.message}
                    </bdi>
                  </span>
                  {group.n > 1 && <span class="count">{group.n}</span>}
                  <span class="muted small">
                    <Ago at={group.newest.raisedAt} />
                  </span>
                </li>
              ))}
              {groups.length > mostLines && (
                <li>
                  <a href={link.alerts()}>{groups.length - mostLines} more</a>
                </li>
              )}
            </ul>
          )}
        </section>
        <section class="box">
          <header>
            <h2>Agents</h2>
            <a class="end" href={link.agents()}>
              All agents
            </a>
          </header>
          {!agents.data ? (
            !agents.problem && <Waiting />
          ) : agents.data.items.length === 0 ? (
            <p class="fine">No agent has claimed a run in the last day.</p>
          ) : (
            <ul class="lines">
              {[...agents.data.items]
                .sort((a, b) => Number(a.holders > 0) - Number(b.holders > 0))
                .slice(0, mostLines)
                .map((agent) => (
                  <li key={agent.name}>
                    <State mark={agentMark(agent)} />
                    <span class="what">
                      <bdi>{agent.name}</bdi> <span class="muted">{agent.holders === 1 ? "1 process" : agent.holders > 1 ? `${agent.holders} processes` : ""}</span>
                    </span>
                    <span class="muted small">
                      <Ago at={agent.seenAt} />
                    </span>
                  </li>
                ))}
              {agents.data.items.length > mostLines && (
                <li>
                  <a href={link.agents()}>{agents.data.items.length - mostLines} more</a>
                </li>
              )}
            </ul>
          )}
        </section>
        <section class="box">
          <header>
            <h2>Nodes</h2>
            <a class="end" href={link.nodes()}>
              All nodes
            </a>
          </header>
          {!nodes.data ? (
            !nodes.problem && <Waiting />
          ) : (
            <ul class="lines">
              {nodes.data.items.slice(0, mostLines).map((node) => (
                <li key={node.id}>
                  <State mark={nodeMark(node)} />
                  <span class="what">
                    <bdi>{node.host}</bdi> <span class="muted">{node.leads.map((role) => role.role).join(", ")}</span>
                  </span>
                  <span class="muted small">
                    <Ago at={node.seenAt} />
                  </span>
                </li>
              ))}
              {nodes.data.items.length > mostLines && (
                <li>
                  <a href={link.nodes()}>{nodes.data.items.length - mostLines} more</a>
                </li>
              )}
            </ul>
          )}
        </section>
        </div>
        <section class="box">
          <header>
            <h2>Latest jobs</h2>
            <a class="end" href={link.jobs()}>
              All jobs
            </a>
          </header>
          {!jobs.data ? (
            !jobs.problem && <Waiting />
          ) : jobs.data.items.length === 0 ? (
            <p class="fine">
              There are no jobs yet. <a href={link.submit()}>Submit one</a>, or see <a href={link.jobs()}>how to begin</a>.
            </p>
          ) : (
            <ul class="lines">
              {jobs.data.items.map((job) => (
                <li key={job.id}>
                  <State mark={jobMark(job)} />
                  <span class="what">
                    <a data-row href={link.job(job.id)} title={job.id}>
                      <bdi>{job.key ?? job.id}</bdi>
                    </a>{" "}
                    <bdi class="muted">{job.type}</bdi>
                  </span>
                  <span class="muted small">
                    <Ago at={job.submittedAt} />
                  </span>
                </li>
              ))}
            </ul>
          )}
        </section>
      </div>
    </>
  );
}

interface AlertGroup {
  key: string;
  n: number;
  newest: Alert;
}

/** Alerts of the same kind and step are one line. They come newest first. */
function groupAlerts(alerts: Alert[]): AlertGroup[] {
  const groups = new Map<string, AlertGroup>();
  for (const alert of alerts) {
    const key = `${alert.kind}/${alert.step ?? ""}`;
    const group = groups.get(key);
    if (group) group.n++;
    else groups.set(key, { key, n: 1, newest: alert });
  }
  return [...groups.values()];
}
