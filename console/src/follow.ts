// A job as it is now: from its stream while it moves, and loaded again from time to time while it is settled or
// parked, because an operator may move it again.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { callTagged, callUrl, Problem, reach, returned } from "./api.ts";
import { readEvents } from "./events.ts";
import { visible } from "./load.ts";
import type { Job, Step } from "./types.ts";

export interface Followed {
  job?: Job;
  /** The steps by name, in the order of the definition. */
  steps: ReadonlyMap<string, Step>;
  problem?: Problem;
  /** Whether the stream is open. */
  live: boolean;
  at: number;
}

/** Events come as fast as the job moves; the page is drawn at most so often, in milliseconds. */
const drawEvery = 200;

/** Time between two loads of a job that is settled or parked. A large job is a large answer. */
const idleEvery = 5_000;
const idleEveryLarge = 60_000;
const largeJob = 500; // steps

const pauseAfterProblem = 5_000;

export function useJob(id: string): Followed & { again: () => void } {
  const followed = useSignal<Followed>({ steps: new Map(), live: false, at: 0 });
  const turn = useSignal(0);
  const shown = visible.value;
  const times = returned.value;
  useEffect(() => {
    if (!shown) return;
    const stop = new AbortController();
    let job = followed.peek().job;
    let steps = new Map(followed.peek().steps);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = (change: Partial<Followed> = {}) => {
      clearTimeout(timer);
      timer = undefined;
      if (stop.signal.aborted) return;
      const { problem: _, ...before } = followed.peek();
      followed.value = { ...before, ...(job && { job }), steps: new Map(steps), at: Date.now(), ...change };
    };
    const whole = (view: Job) => {
      job = view;
      steps = new Map(Object.entries(view.steps ?? {}));
    };
    const part = (view: Job) => {
      // An event leaves out what never changes.
      const before = job!;
      job = { ...view };
      for (const name of ["input", "inputBytes", "definition", "definitionBytes"] as const) {
        if (job[name] === undefined && before[name] !== undefined) Object.assign(job, { [name]: before[name] });
      }
      for (const [name, step] of Object.entries(view.steps ?? {})) {
        const known = steps.get(name);
        const merged = { ...step };
        // An event has no inputs and outputs of steps that changed; these of the same run are still right.
        if (known && known.run === step.run && known.phase === step.phase) {
          if (merged.input === undefined && known.input !== undefined) merged.input = known.input;
          if (merged.output === undefined && known.output !== undefined) merged.output = known.output;
        }
        steps.set(name, merged);
      }
      job.steps = view.steps ?? {};
    };
    const follow = async () => {
      let first = true;
      const ended = await readEvents(id, stop.signal, (name, data) => {
        if (name === "job") {
          if (first) whole(data as unknown as Job);
          else part(data as unknown as Job);
          first = false;
          timer ??= setTimeout(() => draw({ live: true }), followed.peek().job ? drawEvery : 0);
        }
      });
      return ended;
    };
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          if (!(await follow())) {
            if (reach.peek().nextAttemptAt) return; // begins again when the server is back
            await pause(1000, stop.signal);
            continue;
          }
          // It is settled or parked. The whole view has inputs and outputs of the last runs.
          for (let tag: string | undefined; ; ) {
            const answer = await callTagged<Job>(callUrl(["v1", "jobs", id]), tag, { signal: stop.signal });
            if (answer) whole(answer.value);
            if (answer) tag = answer.tag;
            draw({ live: false });
            if (job!.phase !== "settled" && job!.phase !== "parked") break;
            await pause(steps.size > largeJob ? idleEveryLarge : idleEvery, stop.signal);
          }
        } catch (error) {
          if (stop.signal.aborted) return;
          if (!(error instanceof Problem)) throw error;
          draw({ live: false, problem: error });
          if (error.code === "unreachable") return;
          await pause(pauseAfterProblem, stop.signal);
        }
      }
    };
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [id, shown, times, turn.value]);
  return { ...followed.value, again: () => turn.value++ };
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
