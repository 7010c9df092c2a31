// Schedules: their list, and one of them with its next times and its history.
import { useSignal } from "@preact/signals";
import { needs } from "../access.ts";
import { call, callUrl, Problem, serverAddress } from "../api.ts";
import { authorHeaders } from "../form.tsx";
import { ListBox } from "../listbox.tsx";
import { useLoad } from "../load.ts";
import { place } from "../place.ts";
import { link, queryText } from "../router.ts";
import { unknownMark, type Mark } from "../state.ts";
import type { Firing, PageFiring, PageSchedule, Schedule, ScheduleFired } from "../types.ts";
import { actMessage, Ago, AsOf, plural, ProblemNote, State, useTitle, Waiting } from "../widgets.tsx";

const stateMarks: Record<string, Mark> = {
  active: { ...unknownMark("active"), sign: "▶", tone: "good" },
  paused: { ...unknownMark("paused"), sign: "■", tone: "warn" },
  ended: { ...unknownMark("ended"), sign: "✓", tone: "calm" },
};

const firingMarks: Record<string, Mark> = {
  waiting: { ...unknownMark("waiting"), sign: "…", tone: "calm" },
  running: { ...unknownMark("running"), sign: "▶", tone: "busy" },
  parked: { ...unknownMark("parked"), sign: "■", tone: "bad" },
  done: { ...unknownMark("done"), sign: "✓", tone: "good" },
  undone: { ...unknownMark("undone"), sign: "↶", tone: "warn" },
  unsure: { ...unknownMark("unsure"), sign: "?", tone: "bad" },
  skipped: { ...unknownMark("skipped"), sign: "–", tone: "warn" },
};

const pageSize = 100;

/** The rule of times in words. */
function ruleText(schedule: Schedule): string {
  if (schedule.every) return `every ${schedule.every}`;
  if (schedule.at) return schedule.at.length === 1 ? `at ${schedule.at[0]}` : `at ${plural(schedule.at.length, "time")}`;
  const texts = Array.isArray(schedule.cron) ? schedule.cron : [schedule.cron ?? ""];
  return `${texts.join("; ")}${schedule.timezone ? ` ${schedule.timezone}` : ""}`;
}

/** The list of schedules, or one of them. */
export function SchedulePages() {
  const { job: name } = place.value;
  return name ? <SchedulePage key={name} name={name} /> : <ScheduleList />;
}

function ScheduleList() {
  useTitle("Schedules");
  const list = useLoad<PageSchedule>(callUrl(["v1", "schedules"], queryText({ limit: String(pageSize) })), 5000);
  return (
    <>
      <div class="title">
        <h1>Schedules</h1>
      </div>
      <ListBox
        list={list}
        none={
          <>
            <h2>There are no schedules</h2>
            <p class="muted">A schedule starts a job at given times, once for each time.</p>
            <pre>perdure schedules apply nightly.yaml --server {serverAddress}</pre>
          </>
        }
        head={
          <>
            <th>Schedule</th>
            <th class="w-state">State</th>
            <th class="w-name c2">Times</th>
            <th class="w-time">Next</th>
            <th class="w-time c2">Last</th>
            <th class="w-num num c3">Running</th>
            <th class="w-num num c3">Skipped</th>
          </>
        }
        row={(schedule) => (
          <tr key={schedule.name}>
            <td>
              <a data-row href={link.schedules(schedule.name)} title={schedule.name}>
                <bdi>{schedule.name}</bdi>
              </a>
            </td>
            <td>
              <State mark={stateMarks[schedule.state] ?? unknownMark(schedule.state)} />
            </td>
            <td class="c2" title={ruleText(schedule)}>
              <bdi>{ruleText(schedule)}</bdi>
            </td>
            <td>{schedule.state === "active" ? <Ago at={schedule.next[0]} /> : <span class="muted">–</span>}</td>
            <td class="c2">
              {schedule.last ? (
                <a href={link.job(schedule.last.job)}>
                  <Ago at={schedule.last.time} />
                </a>
              ) : (
                <span class="muted">–</span>
              )}
            </td>
            <td class="num c3">{schedule.running.length.toLocaleString("en")}</td>
            <td class="num c3">{(schedule.skipped.overlap + schedule.skipped.catchUp).toLocaleString("en")}</td>
          </tr>
        )}
        note={({ items, nextCursor }) => (
          <>
            {nextCursor ? `The first ${pageSize} schedules.` : `${plural(items.length, "schedule")}.`} As a command: <code>perdure schedules</code>
          </>
        )}
      />
    </>
  );
}

function SchedulePage({ name }: { name: string }) {
  useTitle(name);
  const page = useLoad<Schedule>(callUrl(["v1", "schedules", name]), 2000);
  const history = useLoad<PageFiring>(callUrl(["v1", "schedules", name, "firings"]), 2000);
  const problem = useSignal<Problem | undefined>(undefined);
  const act = async (verb: "pause" | "resume" | "trigger") => {
    try {
      problem.value = undefined;
      const fired = await call<Schedule & ScheduleFired>(callUrl(["v1", "schedules", name, verb]), { method: "POST", headers: authorHeaders() });
      actMessage.value = verb === "trigger" ? `${fired.job} was started` : `${name} was ${verb}d`;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      page.again();
      history.again();
    }
  };
  const schedule = page.data;
  if (!schedule) {
    return (
      <>
        <div class="title">
          <h1 class="cut">
            <bdi>{name}</bdi>
          </h1>
        </div>
        {page.problem ? (
          <ProblemNote problem={page.problem} again={page.again} />
        ) : (
          <div class="box">
            <Waiting />
          </div>
        )}
      </>
    );
  }
  return (
    <>
      <div class="title">
        <h1 class="cut">
          <bdi>{name}</bdi>
        </h1>
        <State mark={stateMarks[schedule.state] ?? unknownMark(schedule.state)} pill />
        <div class="buttons">
          <button type="button" {...needs("act")} onClick={() => void act("trigger")}>
            Start a job now
          </button>
          {schedule.state === "paused" ? (
            <button type="button" class="main" {...needs("act")} onClick={() => void act("resume")}>
              Resume
            </button>
          ) : (
            <button type="button" {...needs("act")} onClick={() => void act("pause")}>
              Pause
            </button>
          )}
        </div>
      </div>
      {(problem.value ?? page.problem) && <ProblemNote problem={(problem.value ?? page.problem)!} />}
      <div class="box inner stack">
        <dl class="pairs">
          <dt>times</dt>
          <dd>
            <bdi>{ruleText(schedule)}</bdi>
          </dd>
          {schedule.pausedReason && [
            <dt key="p">paused</dt>,
            <dd key="pr" class="said">
              <bdi>{schedule.pausedReason}</bdi>
            </dd>,
          ]}
          <dt>next</dt>
          <dd>
            {schedule.next.length === 0 ? (
              "the rule has no more times"
            ) : (
              <ul class="plain" aria-label="Next times">
                {schedule.next.map((at) => (
                  <li key={at}>
                    <Ago at={at} /> <span class="muted">{at}</span>
                  </li>
                ))}
              </ul>
            )}
          </dd>
          <dt>overlap</dt>
          <dd>{schedule.overlap}</dd>
          <dt>started</dt>
          <dd>{plural(schedule.fired, "job")}</dd>
          <dt>skipped</dt>
          <dd>
            {schedule.skipped.overlap.toLocaleString("en")} because of an overlap, {schedule.skipped.catchUp.toLocaleString("en")} because they had passed
          </dd>
          {schedule.backfill && [
            <dt key="b">backfill</dt>,
            <dd key="bf">
              from {schedule.backfill.from} to {schedule.backfill.to}, at {schedule.backfill.next}
            </dd>,
          ]}
        </dl>
      </div>
      <h2>History</h2>
      {history.data && history.data.items.length > 0 ? (
        <div class="box data">
          <table>
            <thead>
              <tr>
                <th>Time</th>
                <th class="w-state">State</th>
                <th class="w-name c2">Reason</th>
                <th class="w-name">Job</th>
              </tr>
            </thead>
            <tbody>
              {history.data.items.map((line) => (
                <FiringRow key={`${line.time} ${line.again ?? 0} ${line.state === "skipped"}`} line={line} />
              ))}
            </tbody>
          </table>
          <div class="below">
            <AsOf at={history.at} />
            <span class="muted small">
              Kept for 90 days. As a command: <code>perdure schedules show {name}</code>
            </span>
          </div>
        </div>
      ) : (
        history.data && <p class="muted">No time has come yet.</p>
      )}
    </>
  );
}

function FiringRow({ line }: { line: Firing }) {
  return (
    <tr>
      <td>
        <Ago at={line.time} /> <span class="muted">{line.times ? `and ${(line.times - 1).toLocaleString("en")} more, to ${line.to}` : line.time}</span>
      </td>
      <td>
        <State mark={firingMarks[line.state] ?? unknownMark(line.state)} />
      </td>
      <td class="c2">{line.reason ?? <span class="muted">–</span>}</td>
      <td>
        {line.job ? (
          <a href={link.job(line.job)} title={line.job}>
            {line.job}
          </a>
        ) : (
          <span class="muted">–</span>
        )}
      </td>
    </tr>
  );
}
