// The agents that have settings, or have claimed runs in the last day.
import { callUrl } from "../api.ts";
import { LimitButton } from "../limit.tsx";
import { useLoad } from "../load.ts";
import { link } from "../router.ts";
import { span } from "../time.ts";
import type { AgentInfo, ListAgent, ListLimit } from "../types.ts";
import { unknownMark, type Mark } from "../state.ts";
import { Ago, AsOf, Count, nouns, now, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

/** Ten years, the default: a higher priority always comes first. */
export const noAgeing = "87600h";

export function agentMark(agent: AgentInfo): Mark {
  if (agent.holders > 0) return { ...unknownMark("claims"), sign: "●", tone: "good" };
  return { ...unknownMark("no claims"), sign: "■", tone: agent.ready ? "bad" : "warn", detail: "No process has claimed runs of this agent in the last 90 seconds: its steps wait." };
}

/** The failed runs of the last hour by error code, and the refused reports. */
export function Failures({ agent }: { agent: AgentInfo }) {
  const codes = Object.entries(agent.errors ?? {}).sort(([, a], [, b]) => b - a);
  const parts = codes.map(([code, n]) => `${code || "other errors"} ${n}`);
  if (agent.refused) parts.push(`refused ${agent.refused}`);
  if (parts.length === 0) return <span class="muted">–</span>;
  return <bdi title={parts.join(", ")}>{parts.join(", ")}</bdi>;
}

export function Agents() {
  useTitle("Agents");
  const agents = useLoad<ListAgent>(callUrl(["v1", "agents"]), 5000);
  const limits = useLoad<ListLimit>(callUrl(["v1", "limits"]), 5000);
  const limitOf = (agent: string) => limits.data?.items.find((limit) => limit.name === `agent:${agent}`);
  return (
    <>
      <div class="title">
        <h1>Agents</h1>
      </div>
      {agents.problem && <ProblemNote problem={agents.problem} again={agents.again} />}
      {!agents.data ? (
        !agents.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : (
        <div class="box data">
          {agents.data.items.length === 0 ? (
            <div class="empty">
              <h2>No agent has claimed a run in the last day</h2>
              <p class="muted">Steps with the agents sleep, approval and signal need none. For all others, start a process that claims their runs.</p>
            </div>
          ) : (
            <table>
              <thead>
                <tr>
                  <th>Agent</th>
                  <th class="w-state">State</th>
                  <th class="w-num num">Ready</th>
                  <th class="w-num num c2">Oldest</th>
                  <th class="w-num num c2">Running</th>
                  <th class="w-num num c2">Slots</th>
                  <th class="w-num num c2">Processes</th>
                  <th class="c2">Last hour</th>
                  <th class="w-time c2">Ageing</th>
                  <th class="w-time c2">Last claim</th>
                  <th class="w-act">Limit</th>
                </tr>
              </thead>
              <tbody>
                {agents.data.items.map((agent) => (
                  <tr key={agent.name}>
                    <td>
                      <a data-row href={link.agents(agent.name)} title={agent.name}>
                        <bdi>{agent.name}</bdi>
                      </a>
                      <div class="under">
                        {agent.holders === 1 ? "1 process" : `${agent.holders} processes`}, {agent.running ?? 0} running
                      </div>
                    </td>
                    <td>
                      <State mark={agentMark(agent)} />
                    </td>
                    <td class="num">
                      {agent.ready ? (
                        <Count n={{ n: agent.ready, capped: agent.readyCapped }} to={link.jobs({ agent: agent.name })} what={`ready ${nouns(agent.ready, "step")} of ${agent.name}`} />
                      ) : (
                        <span class="muted">–</span>
                      )}
                    </td>
                    <td class="num c2">{agent.oldestReady ? span(now.value - Date.parse(agent.oldestReady)) : <span class="muted">–</span>}</td>
                    <td class="num c2">{agent.running || <span class="muted">–</span>}</td>
                    <td class="num c2" title={agent.nodes ? `in ${plural(agent.nodes, "node")}` : undefined}>
                      {agent.slots || <span class="muted">–</span>}
                    </td>
                    <td class="num c2" title={agent.gone ? `${agent.gone} more have claimed earlier in the last day` : undefined}>
                      {agent.holders}
                      {agent.gone ? <span class="muted"> (−{agent.gone})</span> : null}
                    </td>
                    <td class="c2">
                      <Failures agent={agent} />
                    </td>
                    <td class="c2">{agent.ageing === noAgeing ? <span class="muted">–</span> : agent.ageing}</td>
                    <td class="c2">
                      <Ago at={agent.seenAt} />
                    </td>
                    <td class="act">
                      <LimitButton name={`agent:${agent.name}`} limit={limitOf(agent.name)} text={limitOf(agent.name)?.max === undefined ? "Set …" : `${limitOf(agent.name)!.max} …`} done={limits.again} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {agents.data.items.length > 0 && (
            <div class="below">
              <span class="muted small">
                “Processes” have claimed runs in the last 90 s; in brackets are those that have claimed earlier in the last day. “Slots” are those of agents inside <a href={link.nodes()}>nodes</a>. “Last hour” has failed runs by error code, and refused
                reports. The agents sleep and approval need no process.
              </span>
              <AsOf at={agents.at} />
            </div>
          )}
        </div>
      )}
    </>
  );
}
