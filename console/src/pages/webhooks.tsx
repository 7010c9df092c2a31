// Webhooks: the receivers of notifications, one of them, and what became of the notifications of it.
import { signal, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { curlToken, needs } from "../access.ts";
import { call, callUrl, Problem, serverAddress } from "../api.ts";
import { authorHeaders, CommandLine, FormDialog, useSend } from "../form.tsx";
import type { Json } from "../json.ts";
import { applyEvent, emptyList } from "../live.ts";
import { useLoad } from "../load.ts";
import { go, place, setQuery } from "../place.ts";
import type { Right } from "../rights.ts";
import { link, queryText } from "../router.ts";
import { Secret } from "../secret.tsx";
import { unknownMark, type Mark } from "../state.ts";
import type { Alert, Delivery, ListWebhook, PageAlert, PageDelivery, Webhook } from "../types.ts";
import { actMessage, Ago, AsOf, Copy, Icon, Newer, now, plural, ProblemNote, shellWord, State, useTitle, Waiting } from "../widgets.tsx";

type EventKind = NonNullable<Webhook["on"]>[number];

/** The changes that a receiver may name, and what they are. */
const kinds: [kind: EventKind, what: string][] = [
  ["received", "the job was submitted"],
  ["running", "a step of the job was dispatched"],
  ["parked", "the job waits for an operator"],
  ["done", "all steps are done"],
  ["undoing", "the job is to be undone"],
  ["undone", "all steps are undone"],
  ["givenUp", "an operator closed the job as it was"],
  ["alertRaised", "an alert of a job was raised"],
  ["bulkFinished", "a bulk act is done"],
];
const defaultKinds: EventKind[] = ["parked", "done", "undone"];

/** The API counts the pending notifications of a receiver up to this number. */
const mostCounted = 500;
const mostAlerts = 500;
const pageSize = 50;
/** The most deliveries that the page keeps. */
const mostRows = 1000;

const receiverMarks: Record<string, Mark> = {
  active: { ...unknownMark("active"), sign: "✓", tone: "good" },
  failing: { ...unknownMark("failing"), sign: "↻", tone: "warn" },
  full: { ...unknownMark("full"), sign: "■", tone: "bad" },
  paused: { ...unknownMark("paused"), sign: "–", tone: "warn" },
};

/** What the state of a receiver means, if it needs an explanation. */
function stateText({ state, oldest, pausedReason }: Webhook): string {
  switch (state) {
    case "failing":
      return oldest?.error ?? "";
    case "full":
      return "Too many of its notifications are undelivered: new ones are dead at once.";
    case "paused":
      return pausedReason ?? "";
  }
  return "";
}

const receiverMark = (hook: Webhook): Mark => ({ ...(receiverMarks[hook.state] ?? unknownMark(hook.state)), detail: stateText(hook) });

function deliveryMark({ state, attempts }: Delivery): Mark {
  switch (state) {
    case "pending":
      return attempts > 0 ? { ...unknownMark("pending"), sign: "↻", tone: "warn" } : { ...unknownMark("pending"), sign: "○" };
    case "delivered":
      return { ...unknownMark("delivered"), sign: "✓", tone: "good" };
    case "dead":
      return { ...unknownMark("dead"), sign: "■", tone: "bad" };
  }
  return unknownMark(state);
}

/** The URL as far as it is no secret: chats have their secret in the path. */
function hostOf(url: string): { host: string; more: boolean } {
  const [host = ""] = /^https?:\/\/[^/?#]*/i.exec(url) ?? [];
  return { host, more: url.length > host.length + 1 };
}

/** Where the notifications go. */
function Target({ hook }: { hook: Webhook }) {
  if (hook.stream) return <span class="muted">stream</span>;
  const { host, more } = hostOf(hook.url ?? "");
  return (
    <bdi>
      {host}
      {more && "/…"}
    </bdi>
  );
}

/** The types of jobs whose changes are reported. */
function Types({ hook: { types = [] } }: { hook: Webhook }) {
  if (types.length === 0) return <span class="muted">all</span>;
  return (
    <>
      {types.map((type, i) => (
        <>
          {i > 0 && ", "}
          <bdi>{type}</bdi>
        </>
      ))}
    </>
  );
}

const pendingText = (n: number) => (n >= mostCounted ? `${mostCounted}+` : String(n));

const server = () => ` --server ${shellWord(serverAddress)}`;

const json = { "Content-Type": "application/json" };

/** What a dialog is about. A new receiver has no name yet. */
type Draft = "create" | "edit" | "test" | "pause" | "resume" | "rotate" | "resend" | "delete" | "close";

/** A receiver that was created, or whose secret was replaced, until its secret was seen. */
type Fresh = Signal<Webhook | undefined>;

/** The list of receivers, or one of them. */
export function WebhookPages() {
  const { job: name } = place.value;
  const fresh = useSignal<Webhook | undefined>(undefined);
  return (
    <>
      {name ? <Receiver key={name} name={name} fresh={fresh} /> : <Receivers fresh={fresh} />}
      {fresh.value && <Created hook={fresh.value} close={() => (fresh.value = undefined)} />}
    </>
  );
}

/** The open alerts of receivers with dead notifications. */
function useUndelivered() {
  return useLoad<PageAlert>(callUrl(["v1", "alerts"], queryText({ kind: "undelivered", limit: String(mostAlerts) })), 10_000);
}

function Receivers({ fresh }: { fresh: Fresh }) {
  useTitle("Webhooks");
  const list = useLoad<ListWebhook>(callUrl(["v1", "webhooks"]), 5000);
  const dead = new Set(useUndelivered().data?.items.map((alert) => alert.name));
  const creating = useSignal(false);
  const create = (
    <button type="button" class="main" {...needs("access")} onClick={() => (creating.value = true)}>
      New receiver …
    </button>
  );
  return (
    <>
      <div class="title">
        <h1>Webhooks</h1>
        <div class="end">{create}</div>
      </div>
      {list.problem && <ProblemNote problem={list.problem} again={list.again} />}
      {!list.data ? (
        !list.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : list.data.items.length === 0 ? (
        <div class="box empty">
          <h2>There are no receivers</h2>
          <p class="muted">A receiver is told of the changes of jobs: each is posted to a URL, signed, until the receiver accepts it. A receiver without a URL is a stream that programs read.</p>
          <pre>perdure webhooks create shop https://shop.example/hooks --on parked,done --server {serverAddress}</pre>
        </div>
      ) : (
        <div class="box data">
          <table>
            <thead>
              <tr>
                <th>Receiver</th>
                <th class="w-state w-trouble">State</th>
                <th class="w-num num c2">Pending</th>
                <th class="w-name c2">Reports</th>
                <th class="w-name c3">Types</th>
                <th class="w-state c3" title="The latest notification">
                  Latest
                </th>
              </tr>
            </thead>
            <tbody>
              {list.data.items.map((hook) => (
                <ReceiverRow key={hook.name} hook={hook} dead={dead.has(hook.name)} />
              ))}
            </tbody>
          </table>
          <div class="below">
            <span class="muted small">
              {plural(list.data.items.length, "receiver")}. As a command: <code>perdure webhooks</code>
            </span>
            <AsOf at={list.at} />
          </div>
        </div>
      )}
      {creating.value && <Settings fresh={fresh} close={() => (creating.value = false)} done={list.again} />}
    </>
  );
}

function ReceiverRow({ hook, dead }: { hook: Webhook; dead: boolean }) {
  const mark = receiverMark(hook), types = (hook.types ?? []).join(", "), on = (hook.on ?? []).join(", ");
  return (
    <tr>
      <td class="text" title={hook.name}>
        <a data-row class="name" href={link.webhooks(hook.name)}>
          <bdi>{hook.name}</bdi>
        </a>
        <div class="muted small cut">
          <Target hook={hook} />
          {hook.format === "slack" && ", slack"}
        </div>
        <div class="under">
          {hook.pending > 0 && `${pendingText(hook.pending)} pending. `}
          <bdi>{mark.detail}</bdi>
        </div>
      </td>
      <td class="text">
        <State mark={mark} />
        {mark.detail && (
          <div class="muted small c2">
            <bdi class="clamp">{mark.detail}</bdi>
          </div>
        )}
        {dead && (
          <div class="small">
            <a href={link.webhooks(hook.name, { state: "dead" })} aria-label={`dead notifications of ${hook.name}`}>
              has dead ones
            </a>
          </div>
        )}
      </td>
      <td class="num c2">
        {hook.pending > 0 ? (
          <a href={link.webhooks(hook.name, { state: "pending" })} aria-label={`${pendingText(hook.pending)} pending of ${hook.name}`}>
            {pendingText(hook.pending)}
          </a>
        ) : (
          <span class="muted">0</span>
        )}
      </td>
      <td class="c2" title={on}>
        {on}
      </td>
      <td class="c3" title={types}>
        <Types hook={hook} />
      </td>
      <td class="c3 text">
        {hook.latest ? (
          <>
            <State mark={deliveryMark(hook.latest)} />
            <div class="muted small">
              <Ago at={hook.latest.time} />
            </div>
          </>
        ) : (
          <span class="muted">none yet</span>
        )}
      </td>
    </tr>
  );
}

/** The buttons of a receiver, with the rights that they need. */
const acts: [draft: Draft, text: string, right: Right][] = [
  ["test", "Test …", "act"],
  ["pause", "Pause …", "act"],
  ["resume", "Resume …", "act"],
  ["resend", "Resend …", "act"],
  ["rotate", "Rotate the secret …", "access"],
  ["edit", "Edit …", "access"],
  ["delete", "Delete …", "access"],
];

function Receiver({ name, fresh }: { name: string; fresh: Fresh }) {
  const page = useLoad<Webhook>(callUrl(["v1", "webhooks", name]), 3000);
  const undelivered = useUndelivered();
  const draft = useSignal<Draft | undefined>(undefined);
  const turn = useSignal(0); // counts what changes deliveries
  useTitle(`Webhook ${name}`);
  const hook = page.data;
  const missing = page.problem?.code === "notFound";
  if (!hook || missing) {
    return (
      <>
        <div class="title">
          <h1>
            Webhook <bdi>{name}</bdi>
          </h1>
          <div class="end">
            <a class="button" href={link.webhooks()}>
              All receivers
            </a>
          </div>
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
  const alert = undelivered.data?.items.find((one) => one.name === name);
  const shown = acts.filter(([act]) => (act === "pause" ? hook.state !== "paused" : act === "resume" ? hook.state === "paused" : act !== "rotate" || !hook.stream));
  const form: DialogProps = {
    hook,
    close: () => (draft.value = undefined),
    done: () => {
      page.again();
      undelivered.again();
      turn.value++;
    },
  };
  return (
    <>
      <div class="title">
        <h1 class="cut">
          Webhook <bdi>{name}</bdi>
        </h1>
        <State mark={receiverMark(hook)} pill />
        <div class="end">
          {shown.map(([act, text, right]) => (
            <button key={act} type="button" {...needs(right)} onClick={() => (draft.value = act)}>
              {text}
            </button>
          ))}
        </div>
      </div>
      {page.problem && <ProblemNote problem={page.problem} again={page.again} />}
      <Trouble hook={hook} alert={alert} open={(act) => (draft.value = act)} />
      <Facts hook={hook} />
      <Deliveries key={place.value.query.get("state") ?? ""} hook={hook} turn={turn.value} />
      <AsOf at={page.at} />
      {draft.value === "edit" && <Settings hook={hook} fresh={fresh} close={form.close} done={form.done} />}
      {draft.value === "test" && <Test {...form} />}
      {draft.value === "pause" && <Pause {...form} />}
      {draft.value === "resume" && <Resume {...form} />}
      {draft.value === "rotate" && <Rotate {...form} fresh={fresh} />}
      {draft.value === "resend" && <Resend {...form} />}
      {draft.value === "delete" && <Delete {...form} />}
      {draft.value === "close" && alert && <CloseAlert {...form} alert={alert} />}
    </>
  );
}

/** What precedes the cause of a state. */
const troubles: Partial<Record<Webhook["state"], string>> = { failing: "The latest attempt has failed: ", paused: "Nothing is delivered: " };

/** Why a receiver does not get its notifications. */
function Trouble({ hook, alert, open }: { hook: Webhook; alert: Alert | undefined; open: (act: Draft) => void }) {
  const { oldest, state } = hook;
  return (
    <>
      {state !== "active" && stateText(hook) && (
        <div class={`note ${state === "full" ? "bad" : "warn"}`}>
          <Icon name="warn" />
          <div class="body">
            <p class="said">
              {troubles[state]}
              <bdi>{stateText(hook)}</bdi>
            </p>
            {state === "failing" && oldest && (
              <p class="muted small">
                The oldest notification that is not delivered is of a change <Ago at={oldest.time} />, after {plural(oldest.attempts, "attempt")}; the next one is due <Ago at={oldest.nextAttempt} />.
              </p>
            )}
            {state === "paused" && <p class="muted small">Notifications are stored meanwhile. Each is dead three days after its change.</p>}
          </div>
        </div>
      )}
      {alert && (
        <div class="note bad">
          <Icon name="warn" />
          <div class="body">
            <p class="said">
              <bdi>{alert.message}</bdi>
            </p>
            <p class="muted small">
              This <a href={link.alerts({ kind: "undelivered" })}>alert</a> was raised <Ago at={alert.raisedAt} />, and stays open until an operator closes it.
            </p>
          </div>
          <button type="button" {...needs("act")} onClick={() => open("close")}>
            Close the alert …
          </button>
        </div>
      )}
    </>
  );
}

/** The command that reads a stream from the oldest event that is kept. */
const readCommand = (name: string) => `curl -N ${shellWord(callUrl(["v1", "events"], queryText({ receiver: name })))} -H 'Last-Event-ID: 0'${curlToken()}`;

function Facts({ hook }: { hook: Webhook }) {
  const whole = useSignal(false);
  const { host, more } = hostOf(hook.url ?? "");
  return (
    <div class="box inner data">
      <dl class="pairs">
        {hook.stream ? (
          <>
            <dt>read by</dt>
            <dd>
              <code>{readCommand(hook.name)}</code> <Copy text={readCommand(hook.name)} what="the command" />
            </dd>
          </>
        ) : (
          <>
            <dt>URL</dt>
            <dd>
              <bdi class="mono">{whole.value ? hook.url : host}</bdi>
              {more && !whole.value && "/…"}{" "}
              {more && (
                <button type="button" class="link" aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>
                  {whole.value ? "Hide the path" : "Show the path"}
                </button>
              )}
            </dd>
          </>
        )}
        <dt>reports</dt>
        <dd>{(hook.on ?? []).join(", ")}</dd>
        <dt>types</dt>
        <dd>
          <Types hook={hook} />
        </dd>
        <dt>format</dt>
        <dd>{hook.format}</dd>
        <dt>pending</dt>
        <dd>{pendingText(hook.pending)}</dd>
        <dt>changed</dt>
        <dd>
          <Ago at={hook.updatedAt} />, created <Ago at={hook.createdAt} />
        </dd>
      </dl>
    </div>
  );
}

const states = ["pending", "delivered", "dead"];

function Deliveries({ hook, turn }: { hook: Webhook; turn: number }) {
  const state = place.value.query.get("state") ?? "";
  const url = (cursor?: string) => callUrl(["v1", "webhooks", hook.name, "deliveries"], queryText({ state, limit: String(pageSize), cursor }));
  const first = useLoad<PageDelivery>(url(), 3000);
  const list = useSignal(emptyList<Delivery, PageDelivery>()); // the first page, whose rows stay where they are
  const replace = useRef(false);
  const older = useSignal<Delivery[]>([]); // of further pages
  const next = useSignal<PageDelivery | undefined>(undefined); // the last of these pages
  const problem = useSignal<Problem | undefined>(undefined);
  const loading = useSignal(false);
  const startAgain = () => {
    replace.current = true;
    older.value = [];
    next.value = undefined;
    first.again();
  };
  useEffect(() => {
    if (turn > 0) startAgain(); // the operator's act has changed them
  }, [turn]);
  useEffect(() => {
    if (!first.data) return;
    list.value = applyEvent(list.peek(), "page", first.data as unknown as Json, replace.current);
    replace.current = false;
  }, [first.data]);
  const { shown, gone } = list.value;
  const last = next.value ?? shown;
  const items = [...list.value.rows, ...older.value];
  const total = plural(items.length, "notification") + (last?.nextCursor ? ", and more that are older" : "");
  const more = async () => {
    problem.value = undefined;
    loading.value = true;
    try {
      const page = await call<PageDelivery>(url(last!.nextCursor));
      older.value = [...older.peek(), ...page.items];
      next.value = page;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      loading.value = false;
    }
  };
  return (
    <section class="box data" aria-labelledby="deliveries">
      <header>
        <h2 id="deliveries">Deliveries</h2>
        <div class="end">
          <label class="row">
            <span class="muted small">State</span>
            <select data-filter="" value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
              <option value="">all</option>
              {states.map((one) => (
                <option key={one} value={one}>
                  {one}
                </option>
              ))}
              {state && !states.includes(state) && <option value={state}>{state}</option>}
            </select>
          </label>
        </div>
      </header>
      {first.problem && <ProblemNote problem={first.problem} again={first.again} />}
      {!shown ? (
        !first.problem && <Waiting />
      ) : items.length === 0 ? (
        <p class="fine">{state ? `No notification is ${state}.` : "Nothing was reported to this receiver yet. A test shows whether it can be reached."}</p>
      ) : (
        <>
          <Newer list={list.value} noun="notification" show={startAgain}>
            {total}
          </Newer>
          <table aria-label="Deliveries">
            <thead>
              <tr>
                <th class="w-state">State</th>
                <th>Notification</th>
                <th class="w-name c2">Job</th>
                <th class="w-time">Change</th>
                <th class="w-num num c3">Attempts</th>
                <th class="w-time c3">Next, or end</th>
                <th class="w-wide c2">Error</th>
              </tr>
            </thead>
            <tbody>
              {items.map((one) => (
                <DeliveryRow key={one.id} one={one} gone={gone.has(one.id)} />
              ))}
            </tbody>
          </table>
          <div class="below">
            {last?.nextCursor && items.length < mostRows && (
              <button type="button" onClick={more} disabled={loading.value}>
                {loading.value ? "Loading …" : "More"}
              </button>
            )}
            <span class="muted small">
              {total}
              {last?.nextCursor && items.length >= mostRows && ". The page shows no more: choose a state"}. They are kept for 14 days after their end. As a command: <code>perdure webhooks deliveries {hook.name}</code>
            </span>
            <AsOf at={first.at} />
            {problem.value && <ProblemNote problem={problem.value} />}
          </div>
        </>
      )}
    </section>
  );
}

/** perdure.job.done without what all types have. */
const typeText = (type: string) => type.replace(/^perdure\./, "");

/** gone: it no longer has the state that the list shows. */
function DeliveryRow({ one, gone }: { one: Delivery; gone: boolean }) {
  return (
    <tr>
      <td>
        <State mark={gone ? { ...deliveryMark(one), tone: "calm" } : deliveryMark(one)} />
        {gone && <div class="muted small">no longer {one.state}</div>}
      </td>
      <td class="text" title={`${one.type} (${one.id})`}>
        <bdi>{typeText(one.type)}</bdi>
        <div class="muted small c2">
          <code>{one.id}</code>
        </div>
        <div class="under">
          {one.job && <a href={link.job(one.job)}>job</a>}
          {one.attempts > 0 && ` ${plural(one.attempts, "attempt")}. `}
          <bdi>{one.error}</bdi>
        </div>
      </td>
      <td class="c2" title={one.job}>
        {one.job ? (
          <a href={link.job(one.job)}>
            <code>…{one.job.slice(-8)}</code>
          </a>
        ) : (
          <span class="muted">–</span>
        )}
      </td>
      <td>
        <Ago at={one.time} />
      </td>
      <td class="num c3">{one.attempts}</td>
      <td class="c3">{one.state === "pending" && one.nextAttempt && Date.parse(one.nextAttempt) <= now.value ? "due" : <Ago at={one.nextAttempt ?? one.endedAt} />}</td>
      <td class="c2 text" title={one.error}>
        {one.error ? <bdi class="clamp">{one.error}</bdi> : <span class="muted">–</span>}
      </td>
    </tr>
  );
}

interface DialogProps {
  hook: Webhook;
  close: () => void;
  done: () => void;
}

/** A dialog that asks before a call. */
function Ask({ title, send, warn = false, run, close, command, children }: { title: string; send: string; warn?: boolean; run: () => Promise<void>; close: () => void; command: string; children: ComponentChildren }) {
  const { sending, problem, send: start } = useSend();
  return (
    <FormDialog title={title} send={send} ready warn={warn} sending={sending.value} submit={() => void start(run)} close={close}>
      {children}
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={command + server()} />
    </FormDialog>
  );
}

const post = <T,>({ name }: Webhook, verb: string, body: object = {}) => call<T>(callUrl(["v1", "webhooks", name, verb]), { method: "POST", headers: { ...json, ...authorHeaders() }, body: JSON.stringify(body) });

function Test({ hook, close, done }: DialogProps) {
  const run = async () => {
    const { id } = await post<{ id: string }>(hook, "test");
    actMessage.value = `The test ${id} is stored. The deliveries show what becomes of it.`;
    close();
    done();
  };
  return (
    <Ask title={`Test ${hook.name}`} send="Send a test" run={run} close={close} command={`perdure webhooks test ${hook.name}`}>
      <p>
        A notification of the type <code>perdure.test</code> is stored for the receiver, and delivered as any other.
        {hook.state === "paused" && " The receiver is paused: it gets the test after it was resumed."}
      </p>
    </Ask>
  );
}

function Pause({ hook, close, done }: DialogProps) {
  const run = async () => {
    await post<Webhook>(hook, "pause");
    close();
    done();
  };
  return (
    <Ask title={`Pause ${hook.name}`} send="Pause the receiver" warn run={run} close={close} command={`perdure webhooks pause ${hook.name}`}>
      <p>Nothing is delivered until the receiver is resumed. Notifications are still stored; each is dead three days after its change.</p>
    </Ask>
  );
}

function Resume({ hook, close, done }: DialogProps) {
  const run = async () => {
    await post<Webhook>(hook, "resume");
    close();
    done();
  };
  return (
    <Ask title={`Resume ${hook.name}`} send="Resume the receiver" run={run} close={close} command={`perdure webhooks resume ${hook.name}`}>
      <p>{hook.pending > 0 ? `${pendingText(hook.pending)} pending ${hook.pending === 1 ? "notification is" : "notifications are"} delivered.` : "What is stored from now on is delivered. Nothing is pending."}</p>
    </Ask>
  );
}

function Rotate({ hook, close, done, fresh }: DialogProps & { fresh: Fresh }) {
  const run = async () => {
    const changed = await post<Webhook>(hook, "rotate");
    close();
    fresh.value = changed;
    done();
  };
  return (
    <Ask title={`Rotate the secret of ${hook.name}`} send="Give it another secret" run={run} close={close} command={`perdure webhooks rotate ${hook.name}`}>
      <p>The receiver gets another secret, which is shown once. For 24 hours deliveries are signed with both, so that the receiver can change to the new one meanwhile. A secret from before an earlier rotation no longer signs.</p>
    </Ask>
  );
}

function Resend({ hook, close, done }: DialogProps) {
  const since = useSignal("3d");
  const run = async () => {
    const { resent } = await post<{ resent: number }>(hook, "resend", { since: since.value.trim() });
    actMessage.value = resent === 0 ? "There are no dead notifications of this time." : `${plural(resent, "dead notification")} ${resent === 1 ? "is" : "are"} pending again.${resent >= 10_000 ? " There may be more: resend again." : ""}`;
    close();
    done();
  };
  return (
    <Ask title={`Resend to ${hook.name}`} send="Send dead ones again" run={run} close={close} command={`perdure webhooks resend ${hook.name} --since ${shellWord(since.value.trim() || "AGO")}`}>
      <p>Dead notifications are sent again, at most 10,000 at once, and keep their ids. Each has another three days.</p>
      <label class="stack">
        <span class="muted">Of changes in the last 3d, say, or since a time such as 2026-01-02T15:04:05Z</span>
        <input required data-first="" autocomplete="off" spellcheck={false} value={since.value} onInput={(event) => (since.value = event.currentTarget.value)} />
      </label>
    </Ask>
  );
}

function Delete({ hook, close }: DialogProps) {
  const run = async () => {
    await call<undefined>(callUrl(["v1", "webhooks", hook.name]), { method: "DELETE", headers: authorHeaders() });
    actMessage.value = `The receiver ${hook.name} is deleted.`;
    close();
    go(link.webhooks(), true);
  };
  return (
    <Ask title={`Delete ${hook.name}`} send="Delete the receiver" warn run={run} close={close} command={`perdure webhooks rm ${hook.name}`}>
      <p>
        {hook.pending > 0 ? `${pendingText(hook.pending)} pending ${hook.pending === 1 ? "notification is" : "notifications are"} dead then. ` : ""}
        {hook.stream ? "Its readers are refused, and those of a new stream of this name begin with a gap. " : "Its secret is gone: a new receiver of this name has another one. "}
        Changes are no longer reported to it. Jobs whose definition names it go on without.
      </p>
    </Ask>
  );
}

function CloseAlert({ hook, alert, close, done }: DialogProps & { alert: Alert }) {
  const run = async () => {
    await call<unknown>(callUrl(["v1", "alerts", String(alert.id), "close"]), { method: "POST", headers: { ...json, ...authorHeaders() }, body: "{}" });
    close();
    done();
  };
  return (
    <Ask title={`Close the alert of ${hook.name}`} send="Close the alert" run={run} close={close} command={`perdure alerts close ${alert.id}`}>
      <p>The dead notifications stay as they are. Another one that is dead raises the alert again.</p>
    </Ask>
  );
}

interface SettingsProps {
  /** The receiver whose settings are replaced; none: a new one is created. */
  hook?: Webhook;
  fresh: Fresh;
  close: () => void;
  done: () => void;
}

/** The fields of the settings. Those of a new receiver keep their text while the page is shown. */
interface Fields {
  name: Signal<string>;
  stream: Signal<boolean>;
  url: Signal<string>;
  on: Signal<EventKind[]>;
  types: Signal<string>;
  format: Signal<NonNullable<Webhook["format"]>>;
}

const kept: Fields = { name: signal(""), stream: signal(false), url: signal(""), on: signal(defaultKinds), types: signal(""), format: signal("cloudEvents") };

const fieldsOf = (hook: Webhook): Fields => ({
  name: signal(hook.name), stream: signal(hook.stream === true), url: signal(hook.url ?? ""), on: signal(hook.on ?? defaultKinds), types: signal((hook.types ?? []).join("\n")), format: signal(hook.format ?? "cloudEvents"),
});

/** Types of jobs, one a line: they may have spaces and commas. */
const typesOf = (text: string) => text.split("\n").map((type) => type.trim()).filter(Boolean);

/** Types as the value of a flag, which separates them by commas. */
const typesFlag = (types: string[]) => types.map((type) => (/[",]/.test(type) ? `"${type.replaceAll('"', '""')}"` : type)).join(",");

function Settings({ hook, fresh, close, done }: SettingsProps) {
  const { sending, problem, send } = useSend();
  const fields = useSignal(hook ? fieldsOf(hook) : kept).value;
  const { name, stream, url, on, types, format } = fields;
  const called = name.value.trim(), chosen = kinds.map(([kind]) => kind).filter((kind) => on.value.includes(kind));
  const settings = {
    ...(stream.value ? { stream: true } : { url: url.value.trim() }),
    on: chosen,
    ...(typesOf(types.value).length > 0 && { types: typesOf(types.value) }),
    ...(!stream.value && format.value !== "cloudEvents" && { format: format.value }),
  };
  const flags = ["--on", chosen.join(","), ...(settings.types ? ["--types", typesFlag(settings.types)] : []), ...(settings.format ? ["--format", settings.format] : [])];
  const command = ["perdure", "webhooks", hook ? "set" : "create", called || "NAME", stream.value ? "--stream" : url.value.trim() || "URL", ...flags].map(shellWord).join(" ") + server();
  const ready = called !== "" && (stream.value || url.value.trim() !== "") && chosen.length > 0;
  const submit = () =>
    send(async () => {
      const headers = { ...json, ...authorHeaders() };
      if (hook) {
        await call<Webhook>(callUrl(["v1", "webhooks", hook.name]), { method: "PUT", headers, body: JSON.stringify(settings) });
        actMessage.value = `The settings of ${hook.name} are replaced.`;
        close();
      } else {
        const created = await call<Webhook>(callUrl(["v1", "webhooks"]), { method: "POST", headers, body: JSON.stringify({ name: called, ...settings }) });
        name.value = url.value = types.value = "";
        close();
        if (created.secret) fresh.value = created;
        else go(link.webhooks(created.name)); // its page says how a stream is read
      }
      done();
    });
  return (
    <FormDialog title={hook ? `Settings of ${hook.name}` : "A new receiver"} send={hook ? "Replace the settings" : "Create the receiver"} ready={ready} sending={sending.value} submit={() => void submit()} close={close}>
      {!hook && (
        <>
          <label class="stack">
            <span class="muted">Name: letters, digits, - _ and .</span>
            <input required maxLength={64} data-first="" autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
          </label>
          <fieldset class="choices">
            <legend>Notifications are</legend>
            <label>
              <input type="radio" name="kind" checked={!stream.value} onChange={() => (stream.value = false)} /> posted to a URL
            </label>
            <label>
              <input type="radio" name="kind" checked={stream.value} onChange={() => (stream.value = true)} /> a stream that programs read
            </label>
          </fieldset>
        </>
      )}
      {!stream.value && (
        <label class="stack">
          <span class="muted">URL: http or https, without user and password</span>
          <input required type="text" maxLength={2048} data-first={hook ? "" : undefined} autocomplete="off" spellcheck={false} placeholder="https://shop.example/hooks" value={url.value} onInput={(event) => (url.value = event.currentTarget.value)} />
        </label>
      )}
      <fieldset class="choices column">
        <legend>Changes that are reported</legend>
        {kinds.map(([kind, what]) => (
          <label key={kind}>
            <input type="checkbox" checked={on.value.includes(kind)} onChange={(event) => (on.value = event.currentTarget.checked ? [...on.value, kind] : on.value.filter((one) => one !== kind))} />
            <span>
              {kind} <span class="muted">{what}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <div class="split even">
        <label class="stack">
          <span class="muted">Types of jobs, one a line (empty: all)</span>
          <textarea rows={2} spellcheck={false} autocomplete="off" wrap="off" value={types.value} onInput={(event) => (types.value = event.currentTarget.value)} />
        </label>
        {!stream.value && (
          <label class="stack">
            <span class="muted">Format of the body</span>
            <select value={format.value} onChange={(event) => (format.value = event.currentTarget.value as "cloudEvents" | "slack")}>
              <option value="cloudEvents">CloudEvents</option>
              <option value="slack">Slack, Mattermost</option>
            </select>
          </label>
        )}
      </div>
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={command} />
    </FormDialog>
  );
}

/** The secret of a receiver, once, and how it is used. */
function Created({ hook, close }: { hook: Webhook; close: () => void }) {
  const title = (
    <>
      Secret of <bdi>{hook.name}</bdi>
    </>
  );
  return (
    <Secret title={title} text={hook.secret!} what="the secret" warning="The receiver verifies with it that a delivery comes from here." close={close}>
      <div class="stack tight">
        <h3>How the receiver verifies a delivery</h3>
        <p class="muted">Deliveries are signed after Standard Webhooks, for which many languages have a library. Without one:</p>
        <pre>{`key = base64decode(secret without "whsec_")
text = header "webhook-id" + "." + header "webhook-timestamp" + "." + body
"v1," + base64(HMAC-SHA256(key, text)) is in header "webhook-signature"`}</pre>
        <p class="muted">The receiver refuses old timestamps, and ignores ids that it has seen.</p>
      </div>
    </Secret>
  );
}
