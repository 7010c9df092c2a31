// Limits: how many permits exist, and which jobs or runs hold them.
import { callUrl } from "../api.ts";
import { boundText, LimitButton } from "../limit.tsx";
import { useLoad } from "../load.ts";
import { place } from "../place.ts";
import { link } from "../router.ts";
import { unknownMark } from "../state.ts";
import type { Limit, LimitKey, ListLimit, ListLimitKey } from "../types.ts";
import { Ago, AsOf, nouns, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

const mostHolders = 8;

export function Limits() {
  useTitle("Limits");
  const limits = useLoad<ListLimit>(callUrl(["v1", "limits"]), 5000);
  const keysOf = place.value.query.get("keys");
  return (
    <>
      <div class="title">
        <h1>Limits</h1>
        <div class="end">
          <LimitButton name="" text="New limit …" done={limits.again} />
        </div>
      </div>
      {limits.problem && <ProblemNote problem={limits.problem} again={limits.again} />}
      {!limits.data ? (
        !limits.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : (
        <div class="box data">
          {limits.data.items.length === 0 ? (
            <div class="empty">
              <h2>There are no limits</h2>
              <p class="muted">A limit bounds how many jobs of a type, runs of an agent, or runs of steps that name it, may be in progress at once, or begin in a time.</p>
              <pre>perdure limits set agent:payments 10</pre>
            </div>
          ) : (
            <table>
              <thead>
                <tr>
                  <th>Limit</th>
                  <th class="w-name">Used</th>
                  <th class="w-num num c2">Rate</th>
                  <th class="w-num num c2">Each key</th>
                  <th class="w-wide c2">Holders</th>
                  <th class="w-act">
                    <span class="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {limits.data.items.map((limit) => (
                  <LimitRow key={limit.name} limit={limit} done={limits.again} />
                ))}
              </tbody>
            </table>
          )}
          {limits.data.items.length > 0 && (
            <div class="below">
              <AsOf at={limits.at} />
              <span class="muted small">
                A limit with a maximum of 0 pauses what it bounds. See the <a href={link.jobs({ reason: "limit" })}>jobs that wait for a limit</a>.
              </span>
            </div>
          )}
        </div>
      )}
      {keysOf && <Keys key={keysOf} name={keysOf} />}
    </>
  );
}

/** The keys of a limit for which most steps wait. */
function Keys({ name }: { name: string }) {
  const keys = useLoad<ListLimitKey>(callUrl(["v1", "limits", name, "keys"]), 5000);
  return (
    <section class="box data" aria-labelledby="keys">
      <header>
        <h2 id="keys">
          Keys of <bdi>{name}</bdi> that steps wait for
        </h2>
        <a class="end" href={link.limits()}>
          Close
        </a>
      </header>
      {keys.problem && <ProblemNote problem={keys.problem} again={keys.again} />}
      {!keys.data && !keys.problem && <Waiting />}
      {keys.data?.items.length === 0 && <p class="fine">No step is known to wait for a key of this limit: a search for runs has found none that is full.</p>}
      {keys.data && keys.data.items.length > 0 && (
        <>
          <table>
            <thead>
              <tr>
                <th>Key</th>
                <th class="w-num num">Waiting</th>
                <th class="w-num num">Used</th>
                <th class="w-num num c2">Rate</th>
                <th class="w-wide c2">Room again</th>
              </tr>
            </thead>
            <tbody>
              {keys.data.items.map((one) => (
                <KeyRow key={one.key} of={one} />
              ))}
            </tbody>
          </table>
          <div class="below">
            <AsOf at={keys.at} />
          </div>
        </>
      )}
    </section>
  );
}

function KeyRow({ of }: { of: LimitKey }) {
  return (
    <tr>
      <td class="text">
        <bdi>{of.key}</bdi>
      </td>
      <td class="num">
        {of.ready}
        {of.readyCapped && " or more"}
      </td>
      <td class="num">
        {of.used}
        {of.max !== undefined && ` of ${of.max}`}
      </td>
      <td class="num c2">{of.rate ?? <span class="muted">–</span>}</td>
      <td class="c2">
        {of.roomAt ? <Ago at={of.roomAt} /> : !of.neverFit && <span class="muted">–</span>}
        {of.neverFit !== undefined && ` never for ${of.neverFit} ${nouns(of.neverFit, "step")}`}
      </td>
    </tr>
  );
}

function LimitRow({ limit, done }: { limit: Limit; done: () => void }) {
  const full = limit.max !== undefined && limit.used >= limit.max;
  return (
    <tr>
      <td>
        <a href={limitLink(limit.name)} title={limit.name}>
          <bdi>{limit.name}</bdi>
        </a>
        {(limit.perKey || limit.keys) && (
          <span class="after">
            <a class="small" href={link.limits(limit.name)}>
              keys<span class="hidden"> of {limit.name} that steps wait for</span>
            </a>
          </span>
        )}
      </td>
      <td class="text">
        {limit.max === undefined ? (
          <span>{limit.used}</span>
        ) : (
          <>
            <span>
              {limit.used} of {limit.max}
              {full && (
                <>
                  {" "}
                  <State mark={{ ...unknownMark(limit.max === 0 ? "paused" : "full"), sign: "■", tone: "warn" }} />
                </>
              )}
            </span>
            {limit.max > 0 && <meter min={0} max={limit.max} value={limit.used} aria-label={`Used permits of ${limit.name}`} />}
          </>
        )}
      </td>
      <td class="num c2">{limit.rate ?? <span class="muted">–</span>}</td>
      <td class="num c2">
        {limit.perKey ? boundText(limit.perKey) : <span class="muted">–</span>}
        {limit.keys && <span class="muted"> ({Object.keys(limit.keys).length} set apart)</span>}
      </td>
      <td class="c2 text">
        {limit.holders.slice(0, mostHolders).map((holder, i) => (
          <>
            {i > 0 && ", "}
            <a href={link.job(holder.job, { step: holder.step })}>
              <bdi>{holder.step ?? shortId(holder.job)}</bdi>
            </a>
            {holder.key && (
              <span class="muted">
                {" "}
                (<bdi>{holder.key}</bdi>)
              </span>
            )}
          </>
        ))}
        {limit.holders.length > mostHolders && <span class="muted"> and more</span>}
        {limit.holders.length === 0 && <span class="muted">–</span>}
      </td>
      <td class="act">
        <LimitButton name={limit.name} limit={limit} done={done} />
      </td>
    </tr>
  );
}

/** The list of the jobs that a limit bounds; of a limit that steps name, those that wait for any limit. */
function limitLink(name: string): string {
  const of = name.slice(name.indexOf(":") + 1);
  return link.jobs(name.startsWith("agent:") ? { agent: of } : name.startsWith("job:") ? { type: of } : { reason: "limit" });
}

/** The end of an id: its beginning is the time, which neighbours share. */
function shortId(id: string): string {
  return `…${id.slice(-8)}`;
}
