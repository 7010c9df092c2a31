// How far the children of a step are: a bar of their states, counts that lead to lists of them, and those that need an operator.
import { link } from "./router.ts";
import { childrenText } from "./state.ts";
import type { ChildCounts, Job, Step } from "./types.ts";
import { plural } from "./widgets.tsx";

/** The parts of the bar, from the left: their word, their filter in the list of jobs, and how many children they have. */
interface Part {
  word: string;
  tone: string;
  count: number;
  filter: Record<string, string>;
}

function partsOf(step: Step, counts: ChildCounts): Part[] {
  const undo = step.desired === "undone";
  const done: Part = { word: "done", tone: undo ? "busy" : "good", count: counts.done, filter: { phase: "settled", current: "done" } };
  const undone: Part = { word: undo || counts.failed === 0 ? "undone" : "failed, undone", tone: undo ? "warn" : "bad", count: counts.undone, filter: { phase: "settled", current: "undone" } };
  return [
    ...(undo ? [undone, done] : [done, undone]),
    { word: "given up", tone: "bad", count: counts.unsure, filter: { phase: "settled", current: "unsure" } },
    { word: "parked", tone: "parked", count: counts.parked, filter: { phase: "parked" } },
    { word: "not settled", tone: "active", count: counts.active, filter: {} },
  ];
}

export function Children({ job, name, step }: { job: Job; name: string; step: Step }) {
  const counts = step.children;
  if (!counts) return null;
  const parent = `${job.id}/${name}`;
  const parts = partsOf(step, counts);
  const whole = Math.max(counts.total, counts.submitted, 1);
  let from = 0;
  return (
    <div class="children">
      <h3>
        Children <span class="muted">{counts.total}</span>
      </h3>
      <svg class="children-bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={childrenText(step)}>
        {parts.map(({ word, tone, count }) => {
          const width = (100 * count) / whole;
          const part = width > 0 && <rect key={word} class={tone} x={from} y={0} width={width} height={8} />;
          from += width;
          return part;
        })}
      </svg>
      <p>
        <a class="underlined" href={link.jobs({ parent })}>
          {plural(counts.submitted, "job")}
        </a>
        {counts.submitted < counts.total && ` of ${counts.total}`}
        {parts
          .filter(({ count }) => count > 0)
          .map(({ word, tone, count, filter }) => (
            <span key={word}>
              {", "}
              {word === "not settled" ? (
                `${count} ${word}`
              ) : (
                <a class={`underlined ${tone}`} href={link.jobs({ parent, ...filter })}>
                  {count} {word}
                </a>
              )}
            </span>
          ))}
      </p>
      {(counts.firstParked || counts.firstFailed) && (
        <p class="muted">
          {counts.firstParked && (
            <a class="underlined" href={link.job(counts.firstParked)}>
              a parked child
            </a>
          )}
          {counts.firstParked && counts.firstFailed && ", "}
          {counts.firstFailed && (
            <a class="underlined" href={link.job(counts.firstFailed)}>
              the first that failed
            </a>
          )}
        </p>
      )}
      {counts.madeFrom && (
        <p class="muted">
          made from <bdi>{counts.madeFrom}</bdi>
        </p>
      )}
    </div>
  );
}
