// The nodes of the grid, with their roles.
import { callUrl } from "../api.ts";
import { useLoad } from "../load.ts";
import { unknownMark, type Mark } from "../state.ts";
import type { ListNode, Node } from "../types.ts";
import { Ago, AsOf, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

export function nodeMark(node: Node): Mark {
  if (node.state === "alive") return { ...unknownMark("alive"), sign: "●", tone: "good" };
  if (node.state === "dead") return { ...unknownMark("dead"), sign: "×", tone: "warn", detail: "The node has not reported in time. It is listed for a day." };
  return unknownMark(node.state);
}

export function Nodes() {
  useTitle("Nodes");
  const nodes = useLoad<ListNode>(callUrl(["v1", "nodes"]), 5000);
  const alive = nodes.data?.items.filter((node) => node.state === "alive").length;
  return (
    <>
      <div class="title">
        <h1>Nodes</h1>
        {alive !== undefined && <span class="muted">{alive} alive</span>}
      </div>
      {nodes.problem && <ProblemNote problem={nodes.problem} again={nodes.again} />}
      {!nodes.data ? (
        !nodes.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : (
        <div class="box data">
          <table>
            <thead>
              <tr>
                <th class="w-state">State</th>
                <th>Host</th>
                <th class="w-name">Roles</th>
                <th class="w-wide c2">Agents</th>
                <th class="w-name c3">Version</th>
                <th class="w-time c2">Started</th>
                <th class="w-time c3">Seen</th>
              </tr>
            </thead>
            <tbody>
              {nodes.data.items.map((node) => (
                <NodeRow key={node.id} node={node} />
              ))}
            </tbody>
          </table>
          <div class="below">
            <span class="muted small">{nodes.data.items.length === 0 ? "No node has reported yet." : "A role has one leader and, if there are several nodes, a standby. Its epoch grows with each new leader."}</span>
            <AsOf at={nodes.at} />
          </div>
        </div>
      )}
    </>
  );
}

function NodeRow({ node }: { node: Node }) {
  return (
    <tr>
      <td>
        <State mark={nodeMark(node)} />
      </td>
      <td class="text">
        <bdi title={node.id}>{node.host}</bdi>
        <div class="muted small">
          process {node.pid}
          {node.listen && (
            <>
              , <bdi>{node.listen}</bdi>
            </>
          )}
        </div>
      </td>
      <td class="text">
        {node.leads.map((role) => (
          <div key={role.role}>
            <bdi>{role.role}</bdi> <span class="muted small">epoch {role.epoch}</span>
          </div>
        ))}
        {node.standsBy.map((role) => (
          <div key={role.role} class="muted">
            <bdi>{role.role}</bdi> <span class="small">standby</span>
          </div>
        ))}
        {node.leads.length + node.standsBy.length === 0 && <span class="muted">–</span>}
      </td>
      <td class="c2 text">
        {node.agents.map((agent, i) => (
          <>
            {i > 0 && ", "}
            <bdi>{agent}</bdi>
            {node.slots[agent] !== undefined && <span class="muted small"> {plural(node.slots[agent])}</span>}
          </>
        ))}
        {node.agents.length === 0 && <span class="muted">–</span>}
      </td>
      <td class="c3 mono" title={node.version}>
        {node.version}
      </td>
      <td class="c2">
        <Ago at={node.since} />
      </td>
      <td class="c3">
        <Ago at={node.seenAt} />
      </td>
    </tr>
  );
}

function plural(slots: number): string {
  return `${slots} slot${slots === 1 ? "" : "s"}`;
}
