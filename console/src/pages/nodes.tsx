// The nodes of the grid, with their roles.
import { callUrl } from "../api.ts";
import { useLoad } from "../load.ts";
import { unknownMark, type Mark } from "../state.ts";
import type { ListNode, Node } from "../types.ts";
import { Ago, AsOf, Icon, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

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
        <>
        <Roles nodes={nodes.data.items} />
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
            <span class="muted small">{nodes.data.items.length === 0 ? "No node has reported yet." : "A node that has not reported in time is dead. It is listed for a day."}</span>
            <AsOf at={nodes.at} />
          </div>
        </div>
        </>
      )}
    </>
  );
}

/** The roles of the grid, each with its leader and its standbys, and the versions if they differ. */
function Roles({ nodes }: { nodes: Node[] }) {
  const alive = nodes.filter((node) => node.state === "alive");
  const names = [...new Set(alive.flatMap((node) => [...node.leads, ...node.standsBy].map((role) => role.role)))].sort();
  const versions = [...new Set(alive.map((node) => node.version))];
  return (
    <>
      {versions.length > 1 && (
        <div class="note warn">
          <Icon name="warn" />
          <div class="body">
            <p>
              The nodes have {versions.length} versions: <bdi>{versions.join(", ")}</bdi>. This is right during an upgrade only.
            </p>
          </div>
        </div>
      )}
      {names.length > 0 && (
        <div class="roles data">
          {names.map((name) => {
            const leader = alive.find((node) => node.leads.some((role) => role.role === name));
            const standbys = alive.filter((node) => node.standsBy.some((role) => role.role === name));
            const epoch = leader?.leads.find((role) => role.role === name)?.epoch;
            return (
              <section class="box role" key={name} aria-label={`Role ${name}`}>
                <h2>
                  <bdi>{name}</bdi>
                  {epoch !== undefined && <span class="muted small"> epoch {epoch}</span>}
                </h2>
                {leader ? <State mark={{ ...unknownMark(leader.host), sign: "●", tone: "good" }} /> : <State mark={{ ...unknownMark("no leader"), sign: "■", tone: "bad", detail: "No node has this role. A standby takes it within seconds." }} />}
                <p class="muted small">{standbys.length > 0 ? <>standby: <bdi>{standbys.map((node) => node.host).join(", ")}</bdi></> : "no standby: another node would be one"}</p>
              </section>
            );
          })}
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
            {node.slots[agent] !== undefined && <span class="muted small"> {plural(node.slots[agent], "slot")}</span>}
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
