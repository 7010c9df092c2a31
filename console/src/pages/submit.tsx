// A form that submits a definition. While the text is written, the server checks it: its faults are marked at their lines,
// and its graph and plan are shown. The text is kept in the browser until it is submitted.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { needs } from "../access.ts";
import { call, callUrl, Problem, returned } from "../api.ts";
import { caretTo, Editor, type LineMark } from "../editor.tsx";
import { shownPart, siblings, stackMark, countMarks } from "../fold.ts";
import { GraphView } from "../graph.tsx";
import type { Json } from "../json.ts";
import { boundText } from "../limit.tsx";
import { go, goOnFromHere, place } from "../place.ts";
import { link } from "../router.ts";
import type { Mark } from "../state.ts";
import type { Graph, Job, Plan, Validation, Warning } from "../types.ts";
import { toYaml } from "../yaml.ts";
import { plural, ProblemNote, useTitle } from "../widgets.tsx";

const example = `type: hello
steps:
  wait:
    agent: sleep
    with: {for: 30s}
  check:
    after: [wait]
    agent: approval
    with: {message: Is everything fine?}
`;

/** How long after the last key the text is checked, in milliseconds. */
const checkAfter = 300;
const draftKey = "perdure.draft";
/** A longer text is not kept in the browser. */
const longestDraft = 1_000_000;
/** Faults, warnings and limits that are shown. */
const mostShown = 20;

interface Draft {
  text: string;
  /** The job that the text began with; empty: none. */
  from: string;
}

function readDraft(): Draft | undefined {
  try {
    const draft = JSON.parse(localStorage.getItem(draftKey) ?? "null") as Partial<Draft> | null;
    return draft && typeof draft.text === "string" && typeof draft.from === "string" ? (draft as Draft) : undefined;
  } catch {
    return undefined; // nothing of ours, or the browser keeps nothing
  }
}

function keepDraft(draft: Draft | undefined): void {
  try {
    if (draft && draft.text.length <= longestDraft) localStorage.setItem(draftKey, JSON.stringify(draft));
    else localStorage.removeItem(draftKey);
  } catch {
    // it is lost when the page is closed
  }
}

export function Submit() {
  const from = place.value.query.get("from") ?? "";
  useTitle("Submit");
  const draft = useMemo(readDraft, [from]);
  const given = useSignal<string | undefined>(draft && (draft.from === from || !from) ? draft.text : from ? undefined : example);
  const problem = useSignal<Problem | undefined>(undefined);
  useEffect(() => {
    if (given.peek() !== undefined) return;
    const leave = new AbortController();
    call<{ [name: string]: Json }>(callUrl(["v1", "jobs", from, "definition"]), { signal: leave.signal }).then(
      ({ key, ...rest }) => (given.value = `# From ${JSON.stringify(from)}${key === undefined ? "" : ", without its key: the same key is the same job"}.\n${toYaml(rest)}`),
      (error: unknown) => !leave.signal.aborted && (problem.value = error instanceof Problem ? error : new Problem(0, "unknown", String(error))),
    );
    return () => leave.abort();
  }, [from, returned.value]);
  return (
    <>
      <div class="title">
        <h1>Submit a job</h1>
      </div>
      {problem.value && <ProblemNote problem={problem.value} />}
      {given.value !== undefined && <Form key={from} first={given.value} from={from} />}
    </>
  );
}

function Form({ first, from }: { first: string; from: string }) {
  const text = useSignal(first);
  const checked = useSignal<{ text: string; validation?: Validation; problem?: Problem }>({ text: "" });
  const graph = useSignal<{ graph: Graph; text: string } | undefined>(undefined);
  const refused = useSignal<Problem | undefined>(undefined);
  const sending = useSignal(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const now = text.value;

  useEffect(() => {
    const leave = new AbortController();
    const timer = setTimeout(
      async () => {
        if (now !== first) keepDraft({ text: now, from });
        try {
          const validation = await call<Validation>(callUrl(["v1", "validate"]), { method: "POST", headers: { "Content-Type": "application/yaml" }, body: now, signal: leave.signal });
          checked.value = { text: now, validation };
          // A change that moves no step leaves the drawing as it is.
          const drawing = JSON.stringify([validation.graph.nodes, validation.graph.edges]);
          if (graph.peek()?.text !== drawing) graph.value = { graph: validation.graph, text: drawing };
        } catch (error) {
          if (leave.signal.aborted) return;
          checked.value = { text: now, problem: error instanceof Problem ? error : new Problem(0, "unknown", String(error)) };
        }
      },
      checked.peek().text ? checkAfter : 0,
    );
    return () => {
      clearTimeout(timer);
      leave.abort();
    };
  }, [now, returned.value]);

  const submit = async () => {
    if (sending.value) return;
    const goOn = goOnFromHere();
    sending.value = true;
    refused.value = undefined;
    try {
      const job = await call<Job>(callUrl(["v1", "jobs"]), { method: "POST", headers: { "Content-Type": "application/yaml" }, body: text.value });
      keepDraft(undefined);
      goOn(link.job(job.id));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refused.value = error.code === "unreachable" ? new Problem(0, "noAnswer", error.message, "The job may have been stored nevertheless: look at the list of jobs before you submit it again.") : error;
    } finally {
      sending.value = false;
    }
  };

  const { validation } = checked.value;
  const problem = refused.value ?? checked.value.problem;
  const marks = useMemo(() => lineMarks(now, problem, validation?.plan.warnings ?? []), [now, problem, validation]);
  const current = checked.value.text === now;
  const toLine = (line: number, column?: number) => caretTo(area.current, line, column);
  return (
    <form
      class="submit"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <div class="stack">
        <div class="box">
          <Editor
            value={now}
            set={(value) => {
              text.value = value;
              refused.value = undefined;
            }}
            marks={marks}
            label="Definition of the job, as YAML or JSON"
            area={area}
          />
          <div class="below">
            <button type="submit" class="main" {...needs("submit", sending.value)}>
              {sending.value ? "Submitting …" : "Submit"}
            </button>
            {(now !== first || now !== example) && (
              <button
                type="button"
                onClick={() => {
                  keepDraft(undefined);
                  if (from) go(link.submit());
                  else text.value = example;
                }}
              >
                Start again
              </button>
            )}
            <span class="muted small">
              <kbd>Tab</kbd> indents, <kbd>Esc</kbd> leaves the editor. {now.length > longestDraft ? "The text is too long to be kept in this browser." : "The text is kept in this browser."}
            </span>
          </div>
        </div>
      </div>
      <div class={`stack${current ? "" : " checking"}`}>
        {problem ? <Faults problem={problem} asked={refused.value !== undefined} toLine={toLine} /> : validation && <PlanNote validation={validation} toLine={(step) => toLine(lineOf(now, step))} />}
        {graph.value && (
          <section class={`box${problem ? " outdated" : ""}`} aria-label="Graph of the definition">
            <header>
              <h2>Graph</h2>
              {problem && <span class="muted small">of the latest valid text</span>}
            </header>
            <DraftGraph graph={graph.value.graph} warnings={problem ? [] : (validation?.plan.warnings ?? [])} choose={(step) => toLine(lineOf(now, step))} />
          </section>
        )}
      </div>
    </form>
  );
}

/** The line that begins a step; 1 if it is not found. */
export function lineOf(text: string, step: string): number {
  const lines = text.split("\n");
  const names = [step, JSON.stringify(step), `'${step}'`];
  const steps = lines.findIndex((line) => /^\s*["']?steps["']?\s*:/.test(line));
  const at = lines.findIndex((line, i) => i > steps && names.some((name) => line.trimStart().startsWith(`${name}:`)));
  return at < 0 ? 1 : at + 1;
}

function lineMarks(text: string, problem: Problem | undefined, warnings: Warning[]): LineMark[] {
  if (problem) return problem.faults.flatMap((fault) => (fault.line ? [{ line: fault.line, column: fault.column, tone: "bad" as const, text: fault.message }] : []));
  return warnings.flatMap((warning) => (warning.step ? [{ line: lineOf(text, warning.step), tone: "warn" as const, text: warning.text }] : []));
}

function Faults({ problem, asked, toLine }: { problem: Problem; asked: boolean; toLine: (line: number, column?: number) => void }) {
  if (problem.faults.length === 0) return <ProblemNote problem={problem} />;
  return (
    <div class="note bad" role={asked ? "alert" : "status"}>
      <div class="body">
        <h2>{plural(problem.faults.length, "fault")}</h2>
        <ul class="faults">
          {problem.faults.slice(0, mostShown).map((fault, i) => (
            <li key={i}>
              {fault.line ? (
                <button type="button" class="link" onClick={() => toLine(fault.line!, fault.column)}>
                  line {fault.line}, column {fault.column}
                </button>
              ) : (
                <code>{fault.pointer || "/"}</code>
              )}
              : <bdi>{fault.message}</bdi>
              {fault.hint && (
                <span class="muted">
                  {" "}
                  <bdi>({fault.hint})</bdi>
                </span>
              )}
            </li>
          ))}
          {problem.faults.length > mostShown && <li class="muted">{problem.faults.length - mostShown} more</li>}
        </ul>
      </div>
    </div>
  );
}

function PlanNote({ validation: { plan, existing }, toLine }: { validation: Validation; toLine: (step: string) => void }) {
  return (
    <section class="box" aria-label="Plan" role="status">
      <header>
        <h2>Plan</h2>
        <span class="state good">
          <span class="sign" aria-hidden="true">✓</span> valid
        </span>
      </header>
      <div class="inner stack fine-values">
        {existing && (
          <p class="state warn wrap">
            {existing.same ? (
              <span>
                This key is the job <a href={link.job(existing.job)}>{existing.job}</a> already. To submit it again changes nothing.
              </span>
            ) : (
              <span>
                This key belongs to <a href={link.job(existing.job)}>another definition or input</a>: a submission would be refused. Choose another key.
              </span>
            )}
          </p>
        )}
        <dl class="pairs">
          <dt>steps</dt>
          <dd>{plan.steps}</dd>
          <dt>longest path</dt>
          <dd>
            {plural(plan.longestPath.steps, "step")}
            {plan.longestPath.time !== "0s" && `, at most ${plan.longestPath.time} without retries`}
          </dd>
          {plan.limits.length > 0 && (
            <>
              <dt>limits</dt>
              <dd>
                <Limits plan={plan} />
              </dd>
            </>
          )}
        </dl>
        {plan.warnings.length > 0 && (
          <div>
            <h3>{plural(plan.warnings.length + (plan.warningsLeftOut ?? 0), "warning")}</h3>
            <ul class="faults">
              {plan.warnings.slice(0, mostShown).map((warning, i) => (
                <li key={i}>
                  <span class="state warn">
                    <span class="sign" aria-hidden="true">!</span>
                  </span>{" "}
                  {warning.step && (
                    <>
                      <button type="button" class="link" onClick={() => toLine(warning.step!)}>
                        <bdi>{warning.step}</bdi>
                      </button>
                      :{" "}
                    </>
                  )}
                  <bdi>{warning.text}</bdi>
                </li>
              ))}
              {plan.warnings.length + (plan.warningsLeftOut ?? 0) > mostShown && <li class="muted">{plan.warnings.length + (plan.warningsLeftOut ?? 0) - mostShown} more</li>}
            </ul>
          </div>
        )}
      </div>
    </section>
  );
}

function Limits({ plan }: { plan: Plan }) {
  const more = Math.max(0, plan.limits.length - mostShown) + (plan.limitsLeftOut ?? 0);
  return (
    <ul>
      {plan.limits.slice(0, mostShown).map((limit) => (
        <li key={limit.name}>
          <bdi>{limit.name}</bdi>{" "}
          <span class="muted">
            {plural(limit.steps, "step")}
            {limit.amount > 1 && `, ${limit.amount} permits`}, {limit.max === undefined && !limit.rate && !limit.perKey
              ? "not set"
              : [limit.max === undefined ? "" : `at most ${limit.max}`, limit.rate ?? "", limit.perKey ? `${boundText(limit.perKey)} for each key` : ""].filter(Boolean).join(", ")}
          </span>
        </li>
      ))}
      {more > 0 && <li class="muted">{more} more</li>}
    </ul>
  );
}

/** The graph of a text: each box names its agent, and those with warnings stand out. */
function DraftGraph({ graph, warnings, choose }: { graph: Graph; warnings: Warning[]; choose: (step: string) => void }) {
  const shown = useMemo(() => shownPart(graph, siblings(graph), new Set()), [graph]);
  const marks = useMemo(() => {
    const warned = new Set(warnings.map((warning) => warning.step));
    const markOf = (i: number): Mark => {
      const { name, agent } = graph.nodes[i]!;
      return warned.has(name) ? { sign: "!", word: agent, tone: "warn", detail: "warning" } : { sign: "", word: agent, tone: "calm", detail: "" };
    };
    return shown.nodes.map((n, i) => (n.members ? stackMark(countMarks(n.members.map(markOf))) : markOf(graph.nodes.length === shown.nodes.length ? i : graph.nodes.findIndex((m) => m.name === n.name))));
  }, [shown, warnings]);
  return <GraphView shown={shown} steps={graph.nodes.length} marks={marks} chosen={-1} start={-1} choose={(i) => shown.nodes[i] && choose(shown.nodes[i].name)} />;
}
