// The overview: what needs an operator, why steps wait, and what has happened in the last hour. A node computes the
// numbers every few seconds, and this page reads them. Each of them is a link to what it counts.
import { callUrl } from "../api.ts";
import { FirstJob } from "../firstjob.tsx";
import { useLoad } from "../load.ts";
import { link } from "../router.ts";
import { alertMark, jobMark, unknownMark, type Mark } from "../state.ts";
import { alertLink, bars, type Count as CountOf, reasonLink, reasonText, staleAfter, total } from "../stats.ts";
import { span } from "../time.ts";
import type { AgentStats, ListNode, PageJob, ReasonStats, Series, Stats } from "../types.ts";
import { Ago, Count, nouns, now, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";
import { nodeMark } from "./nodes.tsx";
import type { ComponentChildren } from "preact";

const mostLines = 8;

export function Overview() {
  useTitle("");
  const stats = useLoad<Stats>(callUrl(["v1", "stats"]), 3000);
  const jobs = useLoad<PageJob>(callUrl(["v1", "jobs"], `?limit=${mostLines}`), 5000);
  const nodes = useLoad<ListNode>(callUrl(["v1", "nodes"]), 5000);
  const problem = stats.problem ?? jobs.problem ?? nodes.problem;
  const s = stats.data;
  const empty = jobs.data?.items.length === 0;
  return (
    <>
      <div class="title">
        <h1>Overview</h1>
        {s && <Totals stats={s} />}
        {s && <StatsAge stats={s} />}
      </div>
      {problem && <ProblemNote problem={problem} />}
      {empty && <FirstJob />}
      <div class="cards data">
        <Section title="Needs an operator" all={["All alerts", link.alerts()]} waits={!s && !stats.problem}>
          {s && <Alerts stats={s} />}
        </Section>
        <Section title="Why steps wait" all={["All jobs that wait", link.jobs({ phase: "waiting" })]} waits={!s && !stats.problem}>
          {s && <Reasons stats={s} />}
        </Section>
        <Section title="Last hour" waits={!s && !stats.problem}>{s && <Hour series={s.series} />}</Section>
        <Section title="Agents" all={["All agents", link.agents()]} waits={!s && !stats.problem}>
          {s && <Agents stats={s} />}
        </Section>
        <Section title="Types" waits={!s && !stats.problem}>{s && <Types stats={s} />}</Section>
        <div class="stack">
          <Section title="Nodes" all={["All nodes", link.nodes()]} waits={!nodes.data && !nodes.problem}>
            {nodes.data && <Nodes nodes={nodes.data} />}
          </Section>
          <Section title="Latest jobs" all={["All jobs", link.jobs()]} waits={!jobs.data && !jobs.problem}>
            {jobs.data && <Latest jobs={jobs.data} />}
          </Section>
        </div>
      </div>
    </>
  );
}

function Section({ title, all, waits, children }: { title: string; all?: [text: string, to: string]; waits: boolean; children: ComponentChildren }) {
  return (
    <section class="box">
      <header>
        <h2>{title}</h2>
        {all && (
          <a class="end" href={all[1]}>
            {all[0]}
          </a>
        )}
      </header>
      {waits ? <Waiting /> : children}
    </section>
  );
}

function Totals({ stats }: { stats: Stats }) {
  const { waiting, running, parked, settled } = stats.jobs;
  const of = (n: CountOf, phase: string) => (
    <span key={phase}>
      <Count n={n} to={link.jobs({ phase })} what={`${nouns(n.n, "job")} ${phase}${phase === "parked" ? ", or waiting for an approval" : ""}`} /> {phase}
    </span>
  );
  return (
    <p class="totals" aria-label="Jobs by phase">
      {of(waiting, "waiting")} {of(running, "running")} {of(parked, "parked")} {of(settled, "settled")}
    </p>
  );
}

/** How old the statistics are, if that matters. */
function StatsAge({ stats }: { stats: Stats }) {
  if (!stats.asOf) return <span class="end muted small">not computed yet</span>;
  const age = now.value - Date.parse(stats.asOf);
  if (age <= staleAfter) return null;
  return <span class="end state warn small">as of {span(age)} ago</span>;
}

function More({ n, to, what }: { n: number; to?: string; what: string }) {
  if (n <= 0) return null;
  const text = `${n} more ${what}`;
  return <li>{to ? <a href={to}>{text}</a> : <span class="muted">{text}</span>}</li>;
}

function Alerts({ stats }: { stats: Stats }) {
  const missing = stats.reasons.filter((reason) => reason.reason === "noAgent");
  if (stats.alerts.length + missing.length === 0) return <p class="fine">Nothing: there are no open alerts.</p>;
  return (
    <ul class="lines wrap">
      {missing.slice(0, mostLines).map((reason) => (
        <ReasonLine key={reason.name} reason={reason} />
      ))}
      {stats.alerts.slice(0, mostLines).map((alert) => (
        <li key={`${alert.kind} ${alert.type} ${alert.step} ${alert.code}`}>
          <State mark={alertMark(alert.kind)} />
          <span class="what">
            <bdi>
              {alert.type ?? "store"}
              {alert.step && ` / ${alert.step}`}
            </bdi>
            <bdi class="muted">{alert.code}</bdi>
          </span>
          <span class="muted small">
            <Ago at={alert.oldest} />
          </span>
          <Count class="amount" n={{ n: alert.n, capped: stats.alertsCapped }} to={alertLink(alert)} what={`${nouns(alert.n, "alert")}: ${alert.kind}, ${alert.type ?? "store"} ${alert.step ?? ""} ${alert.code ?? ""}`} />
        </li>
      ))}
      <More n={stats.alerts.length - mostLines + (stats.alertsLeftOut ?? 0)} to={link.alerts()} what="groups of alerts" />
    </ul>
  );
}

function reasonMark(reason: ReasonStats): Mark {
  const tones: Record<string, Mark["tone"]> = { noAgent: "bad", limit: "warn", agentBusy: "busy" };
  const words: Record<string, string> = { noAgent: "no agent", limit: "limit", agentBusy: "agent busy", backoff: "retry", notYet: "time", afterSteps: "steps" };
  const signs: Record<string, string> = { noAgent: "■", limit: "◆", agentBusy: "●" };
  return { ...unknownMark(words[reason.reason] ?? reason.reason), sign: signs[reason.reason] ?? "◌", tone: tones[reason.reason] ?? "calm" };
}

function ReasonLine({ reason }: { reason: ReasonStats }) {
  const text = reasonText(reason, now.value);
  return (
    <li>
      <State mark={reasonMark(reason)} />
      <span class="what">
        <bdi title={text}>{text}</bdi>
      </span>
      <Count class="amount" n={{ n: reason.steps, capped: reason.capped }} to={reasonLink(reason)} what={`${nouns(reason.steps, "step")}: ${text}`} />
    </li>
  );
}

function Reasons({ stats }: { stats: Stats }) {
  if (stats.reasons.length === 0) return <p class="fine">No step waits.</p>;
  return (
    <ul class="lines wrap">
      {stats.reasons.slice(0, mostLines).map((reason) => (
        <ReasonLine key={`${reason.reason} ${reason.name}`} reason={reason} />
      ))}
      <More n={stats.reasons.length - mostLines + (stats.reasonsLeftOut ?? 0)} to={link.jobs({ phase: "waiting" })} what="reasons" />
    </ul>
  );
}

const sparkBars = 30;
const barWidth = 5;
const sparkHeight = 24;

/** Bars, one for every few minutes. The last one is not over yet. */
function Spark({ values, tone, what }: { values: readonly number[]; tone: string; what: string }) {
  const width = sparkBars * (barWidth + 1);
  return (
    <svg class={`spark tone ${tone}`} viewBox={`0 0 ${width} ${sparkHeight}`} preserveAspectRatio="none" role="img" aria-label={`${what}, by the minute`}>
      {bars(values, sparkBars).map((height, i) => {
        const tall = height === 0 ? 1 : Math.max(2, Math.round(height * sparkHeight));
        return <rect key={i} class={height === 0 ? "none" : ""} x={i * (barWidth + 1)} y={sparkHeight - tall} width={barWidth} height={tall} />;
      })}
    </svg>
  );
}

function Hour({ series }: { series: Series }) {
  const lines: [name: string, values: readonly number[], tone: string, to: string][] = [
    ["submitted", series.submitted, "busy", link.jobs({ since: "1h" })],
    ["done", series.done, "good", link.jobs({ phase: "settled", current: "done", since: "1h" })],
    ["undone", series.undone, "warn", link.jobs({ phase: "settled", current: "undone" })],
    ["parked", series.parked, "bad", link.jobs({ phase: "parked" })],
    ["failed runs", series.failed, "bad", link.agents()],
  ];
  return (
    <ul class="lines hour">
      {lines.map(([name, values, tone, to]) => (
        <li key={name}>
          <span class="name">{name}</span>
          <Spark values={values} tone={tone} what={name} />
          <span class="amount">
            <Count n={{ n: total(values) }} to={to} what={`${name} in the last hour`} />
          </span>
        </li>
      ))}
    </ul>
  );
}

/** An agent that cannot take the work that is ready comes first. */
function needs(agent: AgentStats): number {
  if (agent.ready > 0 && agent.holders === 0) return 0;
  if (agent.ready > 0) return 1;
  return agent.holders === 0 ? 3 : 2;
}

function Agents({ stats }: { stats: Stats }) {
  if (stats.agents.length === 0) return <p class="fine">No agent has claimed a run in the last day.</p>;
  const agents = [...stats.agents].sort((a, b) => needs(a) - needs(b));
  return (
    <ul class="lines wrap">
      {agents.slice(0, mostLines).map((agent) => {
        const claims = agent.holders > 0;
        const mark: Mark = claims ? { ...unknownMark("claims"), sign: "●", tone: "good" } : { ...unknownMark("no claims"), sign: "■", tone: agent.ready > 0 ? "bad" : "warn" };
        const running = agent.slots > 0 ? `${agent.running} running, ${agent.slots} slots` : `${agent.running} running`;
        return (
          <li key={agent.agent}>
            <State mark={mark} />
            <span class="what">
              <bdi>{agent.agent}</bdi>
              <span class="muted" title={running}>
                {running}
              </span>
            </span>
            {agent.ready > 0 && (
              <>
                <span class="muted small nowrap">{agent.oldestReady && `oldest ${span(now.value - Date.parse(agent.oldestReady))}`}</span>
                <Count class="amount" n={{ n: agent.ready, capped: agent.readyCapped }} to={link.jobs({ agent: agent.agent })} what={`ready ${nouns(agent.ready, "step")} of ${agent.agent}`}>
                  {" ready"}
                </Count>
              </>
            )}
          </li>
        );
      })}
      <More n={agents.length - mostLines + (stats.agentsLeftOut ?? 0)} to={link.agents()} what="agents" />
    </ul>
  );
}

function Types({ stats }: { stats: Stats }) {
  if (stats.types.length === 0) return <p class="fine">There are no open jobs.</p>;
  const types = [...stats.types].sort((a, b) => b.parked - a.parked || b.waiting + b.running - a.waiting - a.running);
  const count = (n: number, type: string, query: Record<string, string>, what: string) => <Count n={{ n, capped: stats.typesCapped }} to={link.jobs({ type, ...query })} what={`${nouns(n, "job")} of type ${type} ${what}`} />;
  return (
    <>
      <table class="types">
        <thead>
          <tr>
            <th>Type</th>
            <th class="num">Waiting</th>
            <th class="num">Running</th>
            <th class="num">Parked</th>
            <th class="num c2">Undoing</th>
            <th class="num c2">Oldest</th>
          </tr>
        </thead>
        <tbody>
          {types.slice(0, mostLines).map((of) => (
            <tr key={of.type}>
              <td>
                <bdi title={of.type}>{of.type}</bdi>
              </td>
              <td class="num">{count(of.waiting, of.type, { phase: "waiting" }, "waiting")}</td>
              <td class="num">{count(of.running, of.type, { phase: "running" }, "running")}</td>
              <td class="num">{count(of.parked, of.type, { phase: "parked" }, "parked")}</td>
              <td class="num c2">{count(of.undoing, of.type, { desired: "undone" }, "being undone")}</td>
              <td class="num c2 muted">{of.oldestWaiting ? span(now.value - Date.parse(of.oldestWaiting)) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <ul class="lines">
        <More n={types.length - mostLines + (stats.typesLeftOut ?? 0)} what="types" />
      </ul>
    </>
  );
}

function Nodes({ nodes }: { nodes: ListNode }) {
  return (
    <ul class="lines">
      {nodes.items.slice(0, mostLines).map((node) => (
        <li key={node.id}>
          <State mark={nodeMark(node)} />
          <span class="what">
            <bdi>{node.host}</bdi> <span class="muted">{node.leads.map((role) => `${role.role} (epoch ${role.epoch})`).join(", ")}</span>
          </span>
          <span class="muted small">
            <Ago at={node.seenAt} />
          </span>
        </li>
      ))}
      <More n={nodes.items.length - mostLines} to={link.nodes()} what="nodes" />
    </ul>
  );
}

function Latest({ jobs }: { jobs: PageJob }) {
  if (jobs.items.length === 0) return <p class="fine">None yet.</p>;
  return (
    <ul class="lines">
      {jobs.items.map((job) => (
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
  );
}
