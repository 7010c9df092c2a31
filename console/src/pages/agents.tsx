// The agents that have settings, or have claimed runs in the last day.
import { callUrl } from "../api.ts";
import { useLoad } from "../load.ts";
import { link } from "../router.ts";
import type { AgentInfo, ListAgent, ListNode } from "../types.ts";
import { unknownMark, type Mark } from "../state.ts";
import { Ago, AsOf, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

/** Ten years, the default: a higher priority always comes first. */
const noAgeing = "87600h";

export function agentMark(agent: AgentInfo): Mark {
  if (agent.holders > 0) return { ...unknownMark("claims"), sign: "●", tone: "good" };
  return { ...unknownMark("no claims"), sign: "■", tone: "warn", detail: "No process has claimed runs of this agent in the last 90 seconds: its steps wait." };
}

export function Agents() {
  useTitle("Agents");
  const agents = useLoad<ListAgent>(callUrl(["v1", "agents"]), 5000);
  const nodes = useLoad<ListNode>(callUrl(["v1", "nodes"]), 5000);
  const slots = (name: string) => {
    const counts = nodes.data?.items.filter((node) => node.state === "alive").flatMap((node) => node.slots[name] ?? []) ?? [];
    return counts.length > 0 ? counts.reduce((sum, n) => sum + n, 0) : undefined;
  };
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
              <p class="muted">Steps with the agents sleep and approval need none. For all others, start a process that claims their runs.</p>
            </div>
          ) : (
            <table>
              <thead>
                <tr>
                  <th>Agent</th>
                  <th class="w-state">State</th>
                  <th class="w-num num c2">Processes</th>
                  <th class="w-num num c2">Gone</th>
                  <th class="w-num num c2">Slots</th>
                  <th class="w-time c2">Ageing</th>
                  <th class="w-time">Last claim</th>
                </tr>
              </thead>
              <tbody>
                {agents.data.items.map((agent) => (
                  <tr key={agent.name}>
                    <td>
                      <bdi title={agent.name}>{agent.name}</bdi>
                      <div class="under">{agent.holders === 1 ? "1 process" : `${agent.holders} processes`}</div>
                    </td>
                    <td>
                      <State mark={agentMark(agent)} />
                    </td>
                    <td class="num c2">{agent.holders}</td>
                    <td class="num c2">{agent.gone || <span class="muted">–</span>}</td>
                    <td class="num c2">{slots(agent.name) ?? <span class="muted">–</span>}</td>
                    <td class="c2">{agent.ageing === noAgeing ? <span class="muted">–</span> : agent.ageing}</td>
                    <td>
                      <Ago at={agent.seenAt} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {agents.data.items.length > 0 && (
            <div class="below">
              <span class="muted small">
                “Processes” have claimed runs in the last 90 s, “gone” earlier in the last day. “Slots” are those of agents inside <a href={link.nodes()}>nodes</a>. The agents sleep and approval need no process.
              </span>
              <AsOf at={agents.at} />
            </div>
          )}
        </div>
      )}
    </>
  );
}
