// One job: its state, its steps as a graph and as a table, its values, history and definition.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { may } from "../access.ts";
import { call, callUrl, Problem } from "../api.ts";
import { ActButtons, shownJob } from "../act.tsx";
import { Children } from "../children.tsx";
import { useJob } from "../follow.ts";
import { JobGraph } from "../graph.tsx";
import { countMarks, siblings } from "../fold.ts";
import { History } from "../history.tsx";
import { Attention, Facts, Head } from "../jobhead.tsx";
import { useKeys } from "../keys.ts";
import { lazy } from "../lazy.tsx";
import { useLoad, type Loaded } from "../load.ts";
import { place, setQuery } from "../place.ts";
import { link } from "../router.ts";
import { jobMark, stateName, stepMark, urgency, type Mark } from "../state.ts";
import { serverNow, span } from "../time.ts";
import type { Graph, Job, Step, StepDetail } from "../types.ts";
import { Value } from "../values.tsx";
import { readingOrder } from "../view.ts";
import { Ago, Copy, copyText, Icon, now, plural, ProblemNote, showCurrent, State, useTitle, Waiting } from "../widgets.tsx";

const Timeline = lazy(() => import("../timeline.tsx").then((part) => part.Timeline));
const StepLog = lazy(() => import("../log.tsx").then((part) => part.StepLog), true);
const StepRuns = lazy(() => import("../timeline.tsx").then((part) => part.StepRuns));

/** What of the address is about one run of the step that is chosen. */
const ofRun = { run: undefined, stream: undefined };

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
  const choose = (step: string | undefined, run?: number) => setQuery({ step, stack: undefined, ...ofRun, ...(run !== undefined && { run: String(run) }), ...(step === undefined && { log: undefined }) });
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
  const handlers = useRef({ "[": () => {}, "]": () => {}, ".": () => {}, a: () => {}, Escape: () => {} });
  Object.assign(handlers.current, { "[": () => besides(-1), "]": () => besides(1), ".": () => void copyText(job.id), a: () => document.querySelector<HTMLElement>(".job-head .buttons :is(button:not(:disabled), summary)")?.focus(), Escape: () => choose(undefined) });
  useKeys(
    useMemo(() => ({ "[": () => handlers.current["["](), "]": () => handlers.current["]"](), ".": () => handlers.current["."](), a: () => handlers.current.a(), Escape: () => handlers.current.Escape() }), []),
  );

  useEffect(() => void (shownJob.value = { job, steps }), [job, steps]);
  useEffect(() => () => void (shownJob.value = undefined), []);

  const bar = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(bar.current), [tab]);

  const step = chosen === undefined ? undefined : steps.get(chosen);
  const stackName = query.get("stack");
  const stack = useMemo(() => {
    if (!stackName || !drawing.data) return undefined;
    const names = siblings(drawing.data).map((group) => group.map((i) => drawing.data!.nodes[i]!.name));
    return names.find((group) => group[0] === stackName);
  }, [drawing.data, stackName]);
  return (
    <>
      <Head job={job} steps={steps} live={live} again={again} />
      <Facts job={job} />
      {problem && <ProblemNote problem={problem} again={again} />}
      <Attention job={job} steps={steps} marks={marks} again={again} />
      <nav class="tabs" aria-label="Parts of the job" ref={bar}>
        {tabs.map((name) => (
          <a key={name} href={link.job(place.value.job, { tab: name === "graph" ? undefined : name, step: asked || undefined })} aria-current={name === tab ? "page" : undefined}>
            {titles[name]}
            {name === "steps" && <span class="muted"> {steps.size}</span>}
          </a>
        ))}
      </nav>
      <div class={`split data${step && query.get("log") === "wide" ? " wide" : ""}`}>
        <div>
          {tab === "graph" &&
            (drawing.data ? (
              <JobGraph
                graph={drawing.data}
                marks={marks}
                settled={(name) => steps.get(name)?.phase === "settled"}
                chosen={chosen}
                start={urgent}
                choose={choose}
                title={job.key ?? `${job.type} ${job.id}`}
                state={`${job.type}, ${jobMark(job).word}`}
              />
            ) : drawing.problem ? (
              <ProblemNote problem={drawing.problem} again={drawing.again} />
            ) : (
              <div class="box">
                <Waiting />
              </div>
            ))}
          {tab === "timeline" && <Timeline job={job} steps={steps} order={order} chosen={chosen} choose={choose} />}
          {tab === "steps" && <Steps job={job} steps={steps} marks={marks} order={stack ?? order} stack={stack} chosen={chosen} />}
          {tab === "data" && <Data job={job} steps={steps} order={order} />}
          {tab === "history" && <History job={job} />}
          {tab === "definition" && <Definition job={job} />}
        </div>
        {step && <StepPanel key={chosen} job={job} name={chosen!} step={step} steps={steps} close={() => choose(undefined)} again={again} />}
        {!step && stack && tab === "graph" && <StackPanel stack={stack} steps={steps} marks={marks} />}
      </div>
    </>
  );
}

const titles: Record<Tab, string> = { graph: "Graph", timeline: "Timeline", steps: "Steps", data: "Input and output", history: "History", definition: "Definition" };
const nothing: Mark = { sign: "", word: "", tone: "calm", detail: "" };

/** Tables of more steps than this show only the rows near the window. */
const manyRows = 300;
const rowsAround = 20;
/** The height of a row of the table before it can be measured, in pixels. */
const usualRow = 37;

interface StepsProps {
  job: Job;
  steps: ReadonlyMap<string, Step>;
  marks: ReadonlyMap<string, Mark>;
  order: string[];
  stack: string[] | undefined;
  chosen: string | undefined;
}

function Steps({ job, steps, marks, order, stack, chosen }: StepsProps) {
  const hide = place.value.query.get("open") === "true";
  const text = (place.value.query.get("find") ?? "").toLowerCase();
  const state = place.value.query.get("state");
  const shown = order.filter((name) => {
    const step = steps.get(name);
    return step && (!state || marks.get(name)?.word === state) && !(hide && step.phase === "settled") && (!text || name.toLowerCase().includes(text) || step.agent.toLowerCase().includes(text));
  });
  const body = useRef<HTMLTableSectionElement>(null);
  const part = useSignal({ from: 0, to: manyRows, rowHeight: usualRow });
  useEffect(() => {
    if (shown.length <= manyRows) return;
    const scrolled = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const rowHeight = body.current?.querySelector("tr:not(.gap)")?.getBoundingClientRect().height || usualRow;
      const from = Math.max(0, Math.floor(-top / rowHeight) - rowsAround);
      const to = Math.ceil((-top + innerHeight) / rowHeight) + rowsAround;
      if (rowHeight !== part.peek().rowHeight || Math.abs(from - part.peek().from) > rowsAround / 2 || Math.abs(to - part.peek().to) > rowsAround / 2) part.value = { from, to, rowHeight };
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
        {(["state", "stack"] as const).map(
          (name) =>
            place.value.query.get(name) && (
              <span class="chip" key={name}>
                <bdi>{name === "stack" ? `equal to ${place.value.query.get(name)}` : place.value.query.get(name)}</bdi>
                <button type="button" class="bare" aria-label={`Remove the filter ${name}`} onClick={() => setQuery({ [name]: undefined })}>
                  <Icon name="close" />
                </button>
              </span>
            ),
        )}
        <span class="muted small">
          {shown.length} of {plural(stack?.length ?? steps.size, "step")}
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
            {from > 0 && <Gap height={from * part.value.rowHeight} />}
            {shown.slice(from, to).map((name) => (
              <StepRow key={name} job={job} name={name} step={steps.get(name)!} chosen={name === chosen} />
            ))}
            {to < shown.length && <Gap height={(shown.length - to) * part.value.rowHeight} />}
          </tbody>
        </table>
      )}
    </div>
  );
}

/**
 * Stands for rows that are not near the window. An SVG has a height without a style. It spans the two columns that are
 * always visible: more would take width from them.
 */
function Gap({ height }: { height: number }) {
  return (
    <tr class="gap" aria-hidden="true">
      <td colSpan={2}>
        <svg width="1" height={height} />
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
          href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), step: name, ...ofRun })}
          aria-current={chosen ? "true" : undefined}
          onClick={(event) => {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            setQuery({ step: name, ...ofRun });
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

const mostListed = 12;

/** A stack of equal steps: how many are in each state, and the most urgent ones. */
function StackPanel({ stack, steps, marks }: { stack: string[]; steps: ReadonlyMap<string, Step>; marks: ReadonlyMap<string, Mark> }) {
  const first = steps.get(stack[0]!)!;
  const counts = countMarks(stack.map((name) => marks.get(name) ?? nothing));
  const urgent = stack.map((name) => ({ name, mark: marks.get(name) ?? nothing })).sort((a, b) => urgency(a.mark) - urgency(b.mark));
  const query = Object.fromEntries(place.value.query);
  return (
    <aside class="box panel" aria-label={`${stack.length} equal steps`}>
      <header>
        <h2>{stack.length} equal steps</h2>
        <button type="button" class="bare end" aria-label="Close" title="Close (Esc)" onClick={() => setQuery({ stack: undefined })}>
          <Icon name="close" />
        </button>
      </header>
      <div class="inner">
        <p class="muted">
          agent <bdi>{first.agent}</bdi>
          {first.action !== stack[0] && (
            <>
              , action <bdi>{first.action}</bdi>
            </>
          )}
          , with the same steps before and after them
        </p>
        <ul class="lines plain">
          {counts.map(({ mark, n }) => (
            <li key={mark.sign + mark.word}>
              <State mark={{ ...mark, detail: "" }} />
              <a class="num" href={link.job(place.value.job, { tab: "steps", stack: stack[0], state: mark.word })}>
                {n}
              </a>
            </li>
          ))}
        </ul>
        <div class="buttons">
          <button type="button" onClick={() => setQuery({ unfold: [...place.value.query.getAll("unfold"), stack[0]!], stack: undefined })}>
            Unfold
          </button>
          <a class="button" href={link.job(place.value.job, { tab: "steps", stack: stack[0] })}>
            As a table
          </a>
        </div>
        <ul class="plain-list">
          {urgent.slice(0, mostListed).map(({ name, mark }) => (
            <li key={name}>
              <State mark={mark} />{" "}
              <a href={link.job(place.value.job, { ...query, stack: undefined, step: name, ...ofRun })}>
                <bdi>{name}</bdi>
              </a>
            </li>
          ))}
          {stack.length > mostListed && <li class="muted">and {stack.length - mostListed} more</li>}
        </ul>
      </div>
    </aside>
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
  const full = detail.value && detail.value.run === step.run && detail.value.phase === step.phase ? detail.value : undefined;
  const input = step.input ?? full?.input, output = step.output ?? full?.output;
  // An event of a job that moves has no values, and no sizes.
  useEffect(() => {
    if (step.run > 0 && input === undefined && output === undefined && !step.inputBytes && !step.outputBytes) void load();
  }, [step.run, step.phase]);
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
              <bdi>{mark.detail.replace(/; try: .*$/s, "")}</bdi>
            </p>
          )}
        </div>
        <ActButtons job={job} name={name} step={step} done={again} />
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
        <Children job={job} name={name} step={step} />
        {step.run > 0 && step.agent && <StepLog job={job} name={name} step={step} />}
        <Value under title="Input" value={input} bytes={full ? 0 : step.inputBytes} load={load} none={noInput(job, name, step)} />
        <Value under title="Output" value={output} bytes={full ? 0 : step.outputBytes} load={load} />
        {step.progress !== undefined && <Value under title="Progress" value={step.progress} />}
        {problem.value && <ProblemNote problem={problem.value} />}
        {step.run > 0 && <StepRuns job={job} name={name} steps={steps} />}
        <dl class="pairs">
          <Pair name="state">
            <bdi>{stateName(job, step.current)}</bdi> → <bdi>{stateName(job, step.desired)}</bdi>, {step.phase}
          </Pair>
          {step.agent && (
            <Pair name="agent">
              <bdi>{step.agent}</bdi>
              {step.action !== name && (
                <span class="muted">
                  , action <bdi>{step.action}</bdi>
                </span>
              )}
            </Pair>
          )}
          {step.after && step.after.length > 0 && (
            <Pair name="after">
              {step.after.map((before, i) => (
                <>
                  {i > 0 && ", "}
                  <a href={link.job(place.value.job, { ...Object.fromEntries(place.value.query), step: before, ...ofRun })}>
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
              <Holder holder={step.lockedBy} />
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
          {step.agent && (
            <Pair name="key">
              <code><bdi>{step.key}</bdi></code> <Copy text={step.key} what="the key" />
            </Pair>
          )}
        </dl>
      </div>
    </aside>
  );
}

/** A holder, which may be a host. */
function Holder({ holder }: { holder: string }) {
  const [, host] = /^host\/([^/]+)\/./.exec(holder) ?? [];
  if (!host || !may("watch")) return <bdi>{holder}</bdi>;
  return (
    <a class="underlined" href={link.hosts({}, host)} title={holder}>
      host <bdi>{host}</bdi>
    </a>
  );
}

/** What stands in the place of an input that is missing: that of a step is computed before its first run. */
function noInput(job: Job, name: string, step: Step): string {
  if (step.run > 0 || step.phase === "settled") return "none";
  const steps = (job.definition as { steps?: Record<string, { with?: unknown }> } | undefined)?.steps;
  return !steps ? "none yet" : steps[name]?.with === undefined ? "none" : "not computed yet";
}

function Pair({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
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
