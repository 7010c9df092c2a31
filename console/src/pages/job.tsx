// One job: its state, its steps as a graph and as a table, its values, history and definition.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { call, callUrl, Problem, serverAddress } from "../api.ts";
import { ActButtons } from "../act.tsx";
import { useJob } from "../follow.ts";
import { GraphView } from "../graph.tsx";
import { showJson, type Json } from "../json.ts";
import { useKeys } from "../keys.ts";
import { useLoad, type Loaded } from "../load.ts";
import { place, setQuery } from "../place.ts";
import { link } from "../router.ts";
import { jobMark, stateName, stepMark, urgency, whyText, type Mark } from "../state.ts";
import { serverNow, span } from "../time.ts";
import { StepRuns, Timeline } from "../timeline.tsx";
import type { Entry, Graph, Job, PageEntry, Step, StepDetail } from "../types.ts";
import { readingOrder } from "../view.ts";
import { Ago, Copy, copyText, Icon, now, plural, ProblemNote, shellWord, showCurrent, sizeText, State, useTitle, Waiting } from "../widgets.tsx";

const tabs = ["graph", "timeline", "steps", "data", "history", "definition"] as const;
type Tab = (typeof tabs)[number];

export function JobPage({ id }: { id: string }) {
  const { job, steps, problem, live, again } = useJob(id);
  const drawing = useLoad<Graph>(callUrl(["v1", "jobs", id, "graph"]), 0);
  useTitle(job ? (job.key ?? `${job.type} ${job.id}`) : "Job");
  if (!job) {
    return problem ? (
      problem.status === 404 ? (
        <div class="box empty">
          <h1>There is no such job</h1>
          <p class="muted">
            <bdi>{problem.message}</bdi>
          </p>
          <a class="button" href={link.jobs()}>
            All jobs
          </a>
        </div>
      ) : (
        <ProblemNote problem={problem} again={again} />
      )
    ) : (
      <div class="box">
        <Waiting />
      </div>
    );
  }
  return <Known job={job} steps={steps} drawing={drawing} problem={problem} live={live} again={again} />;
}

interface KnownProps {
  job: Job;
  steps: ReadonlyMap<string, Step>;
  drawing: Loaded<Graph> & { again: () => void };
  problem: Problem | undefined;
  live: boolean;
  again: () => void;
}

function Known({ job, steps, drawing, problem, live, again }: KnownProps) {
  const { query } = place.value;
  const tab = tabs.find((name) => name === query.get("tab")) ?? "graph";
  const asked = query.get("step") ?? "";
  const chosen = steps.has(asked) ? asked : undefined;
  const choose = (step: string | undefined) => setQuery({ step });
  // The details of these marks count down only when the job moves; rows and the panel make marks of their own.
  const marks = useMemo(() => new Map([...steps].map(([name, step]) => [name, stepMark(job, step, serverNow())])), [steps]);
  const order = useMemo(() => (drawing.data ? readingOrder(drawing.data).map((i) => drawing.data!.nodes[i]!.name) : [...steps.keys()]), [drawing.data, steps.size]);
  const urgent = useMemo(() => {
    let best: string | undefined;
    let least = 4;
    for (const name of order) {
      const rank = urgency(marks.get(name) ?? nothing);
      if (rank < least) [best, least] = [name, rank];
    }
    return best;
  }, [order, marks]);

  const besides = (by: number) => {
    const at = chosen === undefined ? (by > 0 ? -1 : order.length) : order.indexOf(chosen);
    const next = order[Math.min(Math.max(at + by, 0), order.length - 1)];
    if (next !== undefined) choose(next);
  };
  const handlers = useRef({ "[": () => {}, "]": () => {}, ".": () => {}, Escape: () => {} });
  Object.assign(handlers.current, { "[": () => besides(-1), "]": () => besides(1), ".": () => void copyText(job.id), Escape: () => choose(undefined) });
  useKeys(
    useMemo(() => ({ "[": () => handlers.current["["](), "]": () => handlers.current["]"](), ".": () => handlers.current["."](), Escape: () => handlers.current.Escape() }), []),
  );

  const bar = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(bar.current), [tab]);

  const step = chosen === undefined ? undefined : steps.get(chosen);
  return (
    <>
      <Head job={job} live={live} again={again} />
      {problem && <ProblemNote problem={problem} again={again} />}
      <Attention job={job} steps={steps} marks={marks} />
      <nav class="tabs" aria-label="Parts of the job" ref={bar}>
        {tabs.map((name) => (
          <a key={name} href={link.job(place.value.job, { tab: name === "graph" ? undefined : name, step: asked || undefined })} aria-current={name === tab ? "page" : undefined}>
            {titles[name]}
            {name === "steps" && <span class="muted"> {steps.size}</span>}
          </a>
        ))}
      </nav>
      <div class="split data">
        <div>
          {tab === "graph" &&
            (drawing.data ? (
              <div class="box">
                <GraphView graph={drawing.data} marks={marks} chosen={chosen} start={urgent} choose={choose} />
              </div>
            ) : drawing.problem ? (
              <ProblemNote problem={drawing.problem} again={drawing.again} />
            ) : (
              <div class="box">
                <Waiting />
              </div>
            ))}
          {tab === "timeline" && <Timeline job={job} steps={steps} order={order} chosen={chosen} choose={choose} />}
          {tab === "steps" && <Steps job={job} steps={steps} order={order} chosen={chosen} />}
          {tab === "data" && <Data job={job} steps={steps} order={order} />}
          {tab === "history" && <History job={job} />}
          {tab === "definition" && <Definition job={job} />}
        </div>
        {step && <StepPanel key={chosen} job={job} name={chosen!} step={step} steps={steps} close={() => choose(undefined)} again={again} />}
      </div>
    </>
  );
}

const titles: Record<Tab, string> = { graph: "Graph", timeline: "Timeline", steps: "Steps", data: "Input and output", history: "History", definition: "Definition" };
const nothing: Mark = { sign: "", word: "", tone: "calm", detail: "" };

function Head({ job, live, again }: { job: Job; live: boolean; again: () => void }) {
  const labels = Object.entries(job.labels ?? {});
  return (
    <div class="stack data">
      <div class="title">
        <h1 class="clamp" title={job.key ?? job.type}>
          <bdi>{job.key ?? job.type}</bdi>
        </h1>
        <State mark={jobMark(job)} pill />
        <ActButtons job={job} done={again} />
        <div class="end muted small">{live ? <span class="state busy"><span class="live-dot" aria-hidden="true">●</span> live</span> : null}</div>
      </div>
      <div class="facts">
        {job.key && (
          <span>
            type <b><bdi>{job.type}</bdi></b>
          </span>
        )}
        <span>
          <b><bdi>{stateName(job, job.current)}</bdi></b> → <b><bdi>{stateName(job, job.desired)}</bdi></b>
          {job.then && <> → <b><bdi>{stateName(job, job.then)}</bdi></b></>}
        </span>
        {job.unsettled > 0 && <span>{plural(job.unsettled, "step")} unsettled</span>}
        {job.priority !== 0 && (
          <span>
            priority <b>{job.priority}</b>
          </span>
        )}
        {!!job.restarts && <span>{plural(job.restarts, "restart")}</span>}
        {job.completeBy && job.phase !== "settled" && (
          <span>
            deadline <b><Ago at={job.completeBy} /></b>
          </span>
        )}
        <span>
          submitted <b><Ago at={job.submittedAt} /></b>
        </span>
        {job.settledAt && job.phase === "settled" && (
          <span>
            settled <b><Ago at={job.settledAt} /></b> (took {span(Date.parse(job.settledAt) - Date.parse(job.submittedAt))})
          </span>
        )}
        <span class="id">
          <code>{job.id}</code> <Copy text={job.id} what="the id" />
        </span>
        {labels.map(([name, value]) => (
          <a class="chip" key={name} href={link.jobs({ label: `${name}=${value}` })} title="Jobs with this label">
            <span class="cut">
              <bdi>{name}</bdi>=<bdi>{value}</bdi>
            </span>
          </a>
        ))}
      </div>
    </div>
  );
}

const mostAttention = 5;

/** What an operator has to know before all else. */
function Attention({ job, steps, marks }: { job: Job; steps: ReadonlyMap<string, Step>; marks: ReadonlyMap<string, Mark> }) {
  const waiting = [...steps].filter(([name, step]) => step.phase === "parked" || marks.get(name)?.word === "approval");
  const alerts = (job.alerts ?? []).filter((alert) => alert.kind !== "parked" && alert.kind !== "approval");
  if (waiting.length === 0 && alerts.length === 0 && !job.givenUp) return null;
  return (
    <div class={`note ${waiting.some(([, step]) => step.phase === "parked") || job.givenUp ? "bad" : "warn"}`}>
      <Icon name="warn" />
      <div class="body">
        {job.givenUp && (
          <p>
            Given up by <bdi>{job.givenUp.by}</bdi>
            {job.givenUp.reason && (
              <>
                : <bdi>{job.givenUp.reason}</bdi>
              </>
            )}
          </p>
        )}
        {waiting.slice(0, mostAttention).map(([name, step]) => (
          <p key={name}>
            <a href={link.job(place.value.job, { tab: place.value.query.get("tab") ?? undefined, step: name })}>
              <bdi>{name}</bdi>
            </a>
            : <bdi class="said">{whyText(step, now.value) || step.phase}</bdi>
          </p>
        ))}
        {waiting.length > mostAttention && <p>{waiting.length - mostAttention} more steps need an operator.</p>}
        {alerts.slice(0, mostAttention).map((alert) => (
          <p key={String(alert.id)}>
            Alert {alert.kind}
            {alert.step && (
              <>
                , <bdi>{alert.step}</bdi>
              </>
            )}
            : <bdi class="said">{alert.message}</bdi>
          </p>
        ))}
      </div>
    </div>
  );
}

/** Tables of more steps than this show only the rows near the window. */
const manyRows = 300;
const rowHeight = 37;
const rowsAround = 20;

function Steps({ job, steps, order, chosen }: { job: Job; steps: ReadonlyMap<string, Step>; order: string[]; chosen: string | undefined }) {
  const hide = place.value.query.get("open") === "true";
  const text = (place.value.query.get("find") ?? "").toLowerCase();
  const shown = order.filter((name) => {
    const step = steps.get(name);
    return step && !(hide && step.phase === "settled") && (!text || name.toLowerCase().includes(text) || step.agent.toLowerCase().includes(text));
  });
  const body = useRef<HTMLTableSectionElement>(null);
  const part = useSignal({ from: 0, to: manyRows });
  useEffect(() => {
    if (shown.length <= manyRows) return;
    const scrolled = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const from = Math.max(0, Math.floor(-top / rowHeight) - rowsAround);
      const to = Math.ceil((-top + innerHeight) / rowHeight) + rowsAround;
      if (Math.abs(from - part.peek().from) > rowsAround / 2 || Math.abs(to - part.peek().to) > rowsAround / 2) part.value = { from, to };
    };
    scrolled();
    addEventListener("scroll", scrolled, { passive: true });
    addEventListener("resize", scrolled);
    return () => {
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", scrolled);
    };
  }, [shown.length > manyRows]);
  const { from, to } = shown.length > manyRows ? { from: Math.min(part.value.from, shown.length), to: Math.min(part.value.to, shown.length) } : { from: 0, to: shown.length };
  return (
    <div class="box">
      <div class="steps-filter">
        <input data-filter="" aria-label="Find steps by name or agent" placeholder="find a step" value={place.value.query.get("find") ?? ""} spellcheck={false} autocomplete="off" onInput={(event) => setQuery({ find: event.currentTarget.value })} />
        <label>
          <input type="checkbox" checked={hide} onChange={(event) => setQuery({ open: event.currentTarget.checked ? "true" : undefined })} /> hide settled
        </label>
        <span class="muted small">
          {shown.length} of {plural(steps.size, "step")}
        </span>
      </div>
      {shown.length === 0 ? (
        <div class="empty">
          <p class="muted">No step matches.</p>
        </div>
      ) : (
        <table>
          <thead>
            <tr>
              <th class="w-state">State</th>
              <th class="w-name">Step</th>
              <th class="c2">Detail</th>
              <th class="w-name c3">Agent</th>
              <th class="w-num num c3">Run</th>
              <th class="w-time c2">Changed</th>
            </tr>
          </thead>
          <tbody ref={body}>
            {from > 0 && <Gap rows={from} />}
            {shown.slice(from, to).map((name) => (
              <StepRow key={name} job={job} name={name} step={steps.get(name)!} chosen={name === chosen} />
            ))}
            {to < shown.length && <Gap rows={shown.length - to} />}
          </tbody>
        </table>
      )}
    </div>
  );
}

/** Stands for rows that are not near the window. An SVG has a height without a style. */
function Gap({ rows }: { rows: number }) {
  return (
    <tr class="gap" aria-hidden="true">
      <td colSpan={6}>
        <svg width="1" height={rows * rowHeight} />
      </td>
    </tr>
  );
}

function StepRow({ job, name, step, chosen }: { job: Job; name: string; step: Step; chosen: boolean }) {
  const mark = stepMark(job, step, now.value);
  return (
    <tr class={chosen ? "chosen" : ""}>
      <td>
        <State mark={mark} />
      </td>
      <td>
        <a
          data-row
          href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), step: name })}
          aria-current={chosen ? "true" : undefined}
          onClick={(event) => {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            setQuery({ step: name });
          }}
          title={name}
        >
          <bdi>{name}</bdi>
        </a>
      </td>
      <td class="c2 muted" title={mark.detail}>
        <bdi>{mark.detail}</bdi>
      </td>
      <td class="c3" title={step.agent}>
        <bdi>{step.agent}</bdi>
      </td>
      <td class="num c3">{step.run || <span class="muted">–</span>}</td>
      <td class="c2">
        <Ago at={step.endedAt ?? step.startedAt ?? step.readyAt} />
      </td>
    </tr>
  );
}

function StepPanel({ job, name, step, steps, close, again }: { job: Job; name: string; step: Step; steps: ReadonlyMap<string, Step>; close: () => void; again: () => void }) {
  const mark = stepMark(job, step, now.value);
  const detail = useSignal<StepDetail | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const load = async () => {
    problem.value = undefined;
    try {
      detail.value = await call<StepDetail>(callUrl(["v1", "jobs", job.id, "steps", name]));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    }
  };
  const full = detail.value && detail.value.run === step.run ? detail.value : undefined;
  return (
    <aside class="box panel" aria-label={`Step ${name}`}>
      <header>
        <h2>
          <bdi>{name}</bdi>
        </h2>
        <button type="button" class="bare end" aria-label="Close" title="Close (Esc)" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div class="inner">
        <div>
          <State mark={mark} pill />
          {mark.detail && (
            <p class="said muted">
              <bdi>{mark.detail}</bdi>
            </p>
          )}
        </div>
        <ActButtons job={job} name={name} step={step} done={again} />
        <Commands job={job} name={name} step={step} />
        {step.lastError && (
          <div>
            <h3>
              Last error {step.lastError.code && <code><bdi>{step.lastError.code}</bdi></code>}
            </h3>
            <pre class="value">
              <bdi>{step.lastError.message}</bdi>
            </pre>
          </div>
        )}
        {step.run > 0 && <StepRuns job={job} name={name} steps={steps} />}
        <dl class="pairs">
          <Pair name="state">
            <bdi>{stateName(job, step.current)}</bdi> → <bdi>{stateName(job, step.desired)}</bdi>, {step.phase}
          </Pair>
          <Pair name="agent">
            <bdi>{step.agent}</bdi>
            {step.action !== name && (
              <span class="muted">
                , action <bdi>{step.action}</bdi>
              </span>
            )}
          </Pair>
          {step.after && step.after.length > 0 && (
            <Pair name="after">
              {step.after.map((before, i) => (
                <>
                  {i > 0 && ", "}
                  <a href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), step: before })}>
                    <bdi>{before}</bdi>
                  </a>
                </>
              ))}
            </Pair>
          )}
          <Pair name="run">
            {step.run === 0 ? "none yet" : `${step.run} (${step.direction}${step.outcome ? `, ${step.outcome}` : ""})`}, turn {step.turn}
            {step.failures > 0 && `, ${plural(step.failures, "failure")}`}
          </Pair>
          {step.lockedBy && (
            <Pair name="held by">
              <bdi>{step.lockedBy}</bdi>
              {step.lockedUntil && (
                <>
                  , lock ends <Ago at={step.lockedUntil} />
                </>
              )}
            </Pair>
          )}
          {step.readyAt && (
            <Pair name="ready">
              <Ago at={step.readyAt} />
            </Pair>
          )}
          {step.startedAt && (
            <Pair name="started">
              <Ago at={step.startedAt} />
            </Pair>
          )}
          {step.endedAt && (
            <Pair name="ended">
              <Ago at={step.endedAt} />
              {step.startedAt && Date.parse(step.endedAt) >= Date.parse(step.startedAt) && <span class="muted"> after {span(Date.parse(step.endedAt) - Date.parse(step.startedAt))}</span>}
            </Pair>
          )}
          {step.completeBy && step.phase === "running" && (
            <Pair name="deadline">
              <Ago at={step.completeBy} />
            </Pair>
          )}
          {step.limits?.map((limit) => (
            <Pair name="limit" key={limit.name + (limit.key ?? "")}>
              <bdi>{limit.name}</bdi>
              {limit.key && (
                <>
                  , key <bdi>{limit.key}</bdi>
                </>
              )}
              {(limit.amount ?? 1) > 1 && `, ${plural(limit.amount!, "permit")}`}
            </Pair>
          ))}
          <Pair name="key">
            <code><bdi>{step.key}</bdi></code> <Copy text={step.key} what="the key" />
          </Pair>
        </dl>
        <Value under title="Input" value={(full ?? step).input} bytes={full ? 0 : step.inputBytes} load={load} />
        <Value under title="Output" value={(full ?? step).output} bytes={full ? 0 : step.outputBytes} load={load} />
        {step.progress !== undefined && <Value under title="Progress" value={step.progress} />}
        {problem.value && <ProblemNote problem={problem.value} />}
        {!full && (
          <div>
            <button type="button" onClick={load}>
              Load input and output
            </button>
          </div>
        )}
      </div>
    </aside>
  );
}

/** The commands that an operator can choose from, while the console has no acts of its own. */
function Commands({ job, name, step }: { job: Job; name: string; step: Step }) {
  const server = ` --server ${shellWord(serverAddress)}`;
  const commands =
    step.why?.reason === "approval"
      ? [`perdure settle ${job.id} ${name} --as done${server}`, `perdure undo ${job.id}${server}`]
      : step.phase !== "parked"
        ? []
        : [
            `perdure resume ${job.id} ${name}${server}`,
            `perdure settle ${job.id} ${name} --as ${step.desired}${server}`,
            step.desired === "done" ? `perdure skip ${job.id} ${name}${server}` : "",
            step.desired === "done" ? `perdure undo ${job.id}${server}` : `perdure redo ${job.id}${server}`,
          ];
  if (commands.length === 0) return null;
  return (
    <div>
      <h3>Commands for an operator</h3>
      <ul class="commands">
        {commands.filter(Boolean).map((command) => (
          <li key={command}>
            <code>{command}</code>
            <Copy text={command} what={`the command ${command.split(" ")[1]}`} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A word of a shell's command line. */
function Pair({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** The longest text of a value in the page, in characters; the rest is in the download. */
const longestValue = 200_000;

/** A value of a job or step. Large ones are not in the job's view; load gets them. */
function Value({ title, value, bytes, load, under = false }: { title: string; value: unknown; bytes?: number | undefined; load?: () => void; under?: boolean }) {
  const text = useMemo(() => (value === undefined ? "" : showJson(value as Json)), [value]);
  return (
    <section>
      <div class="value-head">
        {under ? <h3>{title}</h3> : <h2>{title}</h2>}
        {text && <Copy text={text} what={title.toLowerCase()} />}
      </div>
      {text ? (
        <>
          <pre class="value" tabIndex={0} role="region" aria-label={title}>
            <bdi>{text.slice(0, longestValue)}</bdi>
          </pre>
          {text.length > longestValue && <p class="muted small">The first {sizeText(longestValue)} of {sizeText(text.length)}. The button copies all of it.</p>}
        </>
      ) : bytes ? (
        <p class="muted">
          {sizeText(bytes)}, not loaded.{" "}
          {load && (
            <button type="button" onClick={load}>
              Load
            </button>
          )}
        </p>
      ) : (
        <p class="muted">none</p>
      )}
    </section>
  );
}

const mostValues = 50;

function Data({ job, steps, order }: { job: Job; steps: ReadonlyMap<string, Step>; order: string[] }) {
  const withOutput = order.filter((name) => steps.get(name)?.output !== undefined || steps.get(name)?.outputBytes);
  return (
    <div class="box">
      <div class="inner stack fine-values">
        <Value title="Input of the job" value={job.input} bytes={job.inputBytes} />
        {withOutput.slice(0, mostValues).map((name) => (
          <Value key={name} title={`Output of ${name}`} value={steps.get(name)!.output} bytes={steps.get(name)!.outputBytes} />
        ))}
        {withOutput.length > mostValues && <p class="muted">{withOutput.length - mostValues} more steps have outputs: choose one in the tab Steps.</p>}
        {withOutput.length === 0 && <p class="muted">No step has an output.</p>}
      </div>
    </div>
  );
}

const historyPage = 200;
const mostHistory = 2000;

function History({ job }: { job: Job }) {
  const first = useLoad<PageEntry>(callUrl(["v1", "jobs", job.id, "history"], `?limit=${historyPage}`), 5000);
  const older = useSignal<Entry[]>([]);
  const cursor = useSignal<string | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  useEffect(() => {
    if (older.peek().length === 0) cursor.value = first.data?.nextCursor;
  }, [first.data]);
  const more = async () => {
    problem.value = undefined;
    try {
      const page = await call<PageEntry>(callUrl(["v1", "jobs", job.id, "history"], `?limit=${historyPage}&cursor=${encodeURIComponent(cursor.peek() ?? "")}`));
      older.value = [...older.peek(), ...page.items];
      cursor.value = page.nextCursor;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    }
  };
  if (!first.data) return first.problem ? <ProblemNote problem={first.problem} again={first.again} /> : <div class="box"><Waiting /></div>;
  const entries = [...first.data.items, ...older.value];
  if (entries.length === 0) {
    return (
      <div class="box empty">
        <h2>Nothing has been recorded</h2>
        <p class="muted">The history has failures and acts. A step that succeeds at once leaves no entry.</p>
      </div>
    );
  }
  return (
    <div class="box">
      <table>
        <thead>
          <tr>
            <th class="w-time">Time</th>
            <th class="w-state">Event</th>
            <th class="w-name c2">Step</th>
            <th>Detail</th>
            <th class="w-name c3">Author</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry, i) => (
            <tr key={i}>
              <td>
                <Ago at={entry.at} />
              </td>
              <td class="text">
                <bdi>{entry.event}</bdi>
              </td>
              <td class="c2 text">
                {entry.step ? (
                  <a href={link.job(place.value.job, { tab: "history", step: entry.step })}>
                    <bdi>{entry.step}</bdi>
                  </a>
                ) : (
                  <span class="muted">–</span>
                )}
                {!!entry.run && <span class="muted small"> run {entry.run}</span>}
              </td>
              <td class="text">
                <bdi class="said">{entry.detail ?? ""}</bdi>
              </td>
              <td class="c3 text">
                <bdi>{entry.author ?? ""}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {(cursor.value || problem.value) && (
        <div class="below">
          {cursor.value && entries.length < mostHistory ? (
            <button type="button" onClick={more}>
              More
            </button>
          ) : (
            <span class="muted small">The page shows no more entries.</span>
          )}
          {problem.value && <ProblemNote problem={problem.value} />}
        </div>
      )}
    </div>
  );
}

function Definition({ job }: { job: Job }) {
  const definition = useLoad<unknown>(job.definition === undefined ? callUrl(["v1", "jobs", job.id, "definition"]) : "", 0);
  const value = job.definition ?? definition.data;
  if (value === undefined) return definition.problem ? <ProblemNote problem={definition.problem} again={definition.again} /> : <div class="box"><Waiting /></div>;
  return (
    <div class="box">
      <div class="inner stack fine-values">
        <Value title="Definition, in canonical form" value={value} />
        <p class="muted small">Submitted again, it is the same job.</p>
      </div>
    </div>
  );
}
