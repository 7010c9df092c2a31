// One agent: its numbers and settings, and how the runs of its holders have ended.
import { callUrl } from "../api.ts";
import { LimitButton } from "../limit.tsx";
import { useLoad } from "../load.ts";
import { link } from "../router.ts";
import { hostOf } from "../spans.ts";
import { unknownMark, type Mark } from "../state.ts";
import { span } from "../time.ts";
import type { AgentInfo, HolderHealth, ListLimit, Share } from "../types.ts";
import { Ago, AsOf, Count, nouns, now, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";
import { agentMark, Failures, noAgeing } from "./agents.tsx";

const every = 5000;

function healthMark({ weight, runs, done }: HolderHealth): Mark {
  if (weight >= 1) return { ...unknownMark("healthy"), sign: "●", tone: "good" };
  return { ...unknownMark(done < runs ? "fails" : "slow"), sign: "↻", tone: "warn", detail: `The holder gets at most ${Math.round(weight * 100)} % of what it claims.` };
}

export function OneAgent({ name }: { name: string }) {
  useTitle(`Agent ${name}`);
  const page = useLoad<AgentInfo>(callUrl(["v1", "agents", name]), every);
  const limits = useLoad<ListLimit>(callUrl(["v1", "limits"]), every);
  const all = (
    <a class="button" href={link.agents()}>
      All agents
    </a>
  );
  const agent = page.data;
  if (!agent || page.problem?.status === 404) {
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
        <h1>There is no such agent</h1>
        <p class="muted">
          <bdi>{page.problem.message}</bdi>
        </p>
        {all}
      </div>
    );
  }
  const limit = limits.data?.items.find((one) => one.name === `agent:${name}`);
  return (
    <>
      <div class="title">
        <h1 class="cut">
          Agent <bdi>{agent.name}</bdi>
        </h1>
        <State mark={agentMark(agent)} pill />
        <div class="end">
          <LimitButton name={`agent:${agent.name}`} limit={limit} text={limit?.max === undefined ? "Set the limit …" : `Limit ${limit.max} …`} done={limits.again} />
          <a class="button" href={link.jobs({ agent: agent.name })}>
            Jobs with open steps
          </a>
          {all}
        </div>
      </div>
      {page.problem && <ProblemNote problem={page.problem} again={page.again} />}
      <div class="box inner data">
        <dl class="pairs">
          <dt>ready</dt>
          <dd>
            {agent.ready ? <Count n={{ n: agent.ready, capped: agent.readyCapped }} to={link.jobs({ agent: agent.name })} what={`ready ${nouns(agent.ready, "step")} of ${agent.name}`} /> : <span class="muted">–</span>}
            {agent.oldestReady && <span class="muted">, the oldest for {span(now.value - Date.parse(agent.oldestReady))}</span>}
          </dd>
          <dt>running</dt>
          <dd>
            {agent.running ?? 0}
            {agent.slots ? <span class="muted">, {plural(agent.slots, "slot")} in nodes</span> : null}
          </dd>
          <dt>processes</dt>
          <dd>
            {agent.holders}
            {agent.gone ? <span class="muted">, and {agent.gone} earlier in the last day</span> : null}
          </dd>
          <dt>last claim</dt>
          <dd>
            <Ago at={agent.seenAt} />
          </dd>
          <dt>last hour</dt>
          <dd>
            <Failures agent={agent} />
          </dd>
          <dt>ageing</dt>
          <dd>{agent.ageing === noAgeing ? <span class="muted">–</span> : agent.ageing}</dd>
          {agent.patience !== undefined && (
            <>
              <dt title="How long a step waits for room on a host before it reserves one">patience</dt>
              <dd>{agent.patience}</dd>
            </>
          )}
          {agent.fairBy && (
            <>
              <dt title="Runs are dispatched in turn from the jobs with each value">fair by</dt>
              <dd>
                <code>{agent.fairBy}</code>
              </dd>
            </>
          )}
        </dl>
      </div>
      {(agent.fairBy || agent.shares) && <Shares shares={agent.shares ?? []} />}
      {agent.health && <Holders health={agent.health} />}
      <AsOf at={page.at} />
    </>
  );
}

/** The shares that go first. */
function Shares({ shares }: { shares: Share[] }) {
  return (
    <section class="box data" aria-labelledby="shares">
      <header>
        <h2 id="shares">Shares</h2>
        <span class="muted">{shares.length}</span>
      </header>
      {shares.length === 0 ? (
        <p class="fine">No share has ready steps.</p>
      ) : (
        <table aria-labelledby="shares">
          <thead>
            <tr>
              <th>Share</th>
              <th class="w-num num">Weight</th>
              <th class="w-num num">Ready</th>
              <th class="w-num num">Ahead</th>
            </tr>
          </thead>
          <tbody>
            {shares.map((one) => (
              <tr key={one.value}>
                <td title={one.value}>
                  <bdi>{one.value}</bdi>
                </td>
                <td class="num">{one.weight}</td>
                <td class="num">
                  {one.ready}
                  {one.readyCapped ? "+" : ""}
                </td>
                <td class="num">{Math.round(one.ahead * 100) / 100}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <div class="below">
        <span class="muted small">Runs are dispatched from the shares in turn; the first of the list goes first. Ahead: how many runs of weight 1 a share has got more than the least that counts.</span>
      </div>
    </section>
  );
}

/** The holders whose runs have ended in the last ten minutes. */
function Holders({ health }: { health: HolderHealth[] }) {
  return (
    <section class="box data" aria-labelledby="holders">
      <header>
        <h2 id="holders">Holders</h2>
        <span class="muted">{health.length}</span>
      </header>
      {health.length === 0 ? (
        <p class="fine">No run has ended in the last ten minutes at this node.</p>
      ) : (
        <table aria-labelledby="holders">
          <thead>
            <tr>
              <th>Holder</th>
              <th class="w-state">State</th>
              <th class="w-num num">Weight</th>
              <th class="w-num num">Done</th>
              <th class="w-num num c2">Runs</th>
              <th class="w-time num c2">Mean time</th>
            </tr>
          </thead>
          <tbody>
            {health.map((one) => (
              <tr key={one.holder}>
                <td title={one.holder}>
                  {hostOf(one.holder) !== one.holder ? (
                    <a data-row href={link.hosts({}, hostOf(one.holder))}>
                      <bdi>{hostOf(one.holder)}</bdi>
                    </a>
                  ) : (
                    <bdi>{one.holder}</bdi>
                  )}
                </td>
                <td>
                  <State mark={healthMark(one)} />
                </td>
                <td class="num">{Math.round(Number(one.weight) * 100)} %</td>
                <td class="num">{one.runs > 0 ? `${Math.round((100 * one.done) / one.runs)} %` : "–"}</td>
                <td class="num c2">{one.runs}</td>
                <td class="num c2">{one.meanDuration}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <div class="below">
        <span class="muted small">The latest runs of each holder that have ended in the last ten minutes, as the node that answers has seen them. A holder that fails, or is much slower than others, gets a smaller share of what it claims.</span>
      </div>
    </section>
  );
}
