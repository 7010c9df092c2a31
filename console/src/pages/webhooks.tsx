// Webhooks: the receivers of notifications, one of them, and what became of the notifications of it.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { curlToken, may, needs } from "../access.ts";
import { callUrl, serverAddress } from "../api.ts";
import type { Json } from "../json.ts";
import { applyEvent, emptyList } from "../live.ts";
import { ListBox } from "../listbox.tsx";
import { useLoad } from "../load.ts";
import { useOlder } from "../older.ts";
import { go, place, setQuery } from "../place.ts";
import type { Right } from "../rights.ts";
import { link, queryText } from "../router.ts";
import type { Alert, Delivery, ListWebhook, PageAlert, PageDelivery, Webhook } from "../types.ts";
import { deliveryMark, hostOf, numberText, receiverMark, stateText, Target, Types } from "../webhook.tsx";
import { CloseAlert, Created, Delete, type DialogProps, type Fresh, Pause, Resend, Resume, Rotate, Settings, Test } from "../webhookdialogs.tsx";
import { Ago, AsOf, Copy, Icon, Newer, now, plural, ProblemNote, shellWord, State, useTitle, Waiting } from "../widgets.tsx";

const mostAlerts = 500;
const pageSize = 50;
/** The most deliveries that the page keeps. */
const mostRows = 1000;

/** The list of receivers, or one of them. */
export function WebhookPages() {
  const { job: name } = place.value;
  const fresh = useSignal<Webhook | undefined>(undefined);
  return (
    <>
      {!name ? <Receivers fresh={fresh} /> : isUrl(name) ? <UrlDeliveries key={name} url={name} /> : <Receiver key={name} name={name} fresh={fresh} />}
      {fresh.value && <Created hook={fresh.value} close={() => (fresh.value = undefined)} />}
    </>
  );
}

/** Whether notifications go to a URL that definitions name, and not to a receiver of the store. */
const isUrl = (name: string) => name.includes("://");

/** Asks for a URL that definitions name. */
function AskUrl() {
  return (
    <form
      class="ask"
      onSubmit={(event) => {
        event.preventDefault();
        const url = String(new FormData(event.currentTarget).get("url")).trim();
        if (url) go(link.webhooks(url));
      }}
    >
      <label>
        <span class="muted small">Deliveries to a URL that a definition names</span>
        <input name="url" type="url" required pattern="https?://.+" placeholder="https://shop.example/hooks" maxLength={2048} />
      </label>
      <button type="submit">Show</button>
    </form>
  );
}

/** The deliveries to a URL that definitions name. */
function UrlDeliveries({ url }: { url: string }) {
  useTitle("Webhook of a definition");
  const asking = useSignal(false);
  const turn = useSignal(0); // counts what changes deliveries
  return (
    <>
      <div class="title">
        <h1 class="cut">
          Deliveries to <bdi>{hostOf(url).host || url}</bdi>
        </h1>
        <div class="end">
          <button type="button" {...needs("act")} onClick={() => (asking.value = true)}>
            Resend …
          </button>
          <a class="button" href={link.webhooks()}>
            All receivers
          </a>
        </div>
      </div>
      <p class="muted">
        Definitions name this URL in <code>notify</code>. Its path, which may be a secret, is shown only in the address of this page.
      </p>
      <Deliveries key={place.value.query.get("state") ?? ""} name={url} turn={turn.value} />
      {asking.value && <Resend name={url} close={() => (asking.value = false)} done={() => turn.value++} />}
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
      <ListBox
        list={list}
        none={
          <>
            <h2>There are no receivers</h2>
            <p class="muted">A receiver is told of the changes of jobs: each is posted to a URL, signed, until the receiver accepts it. A receiver without a URL is a stream that programs read.</p>
            <pre>perdure webhooks create shop https://shop.example/hooks --on parked,done --server {serverAddress}</pre>
          </>
        }
        head={
          <>
            <th>Receiver</th>
            <th class="w-state w-trouble">State</th>
            <th class="w-num num c2">Pending</th>
            <th class="w-num num c2">Dead</th>
            <th class="w-name c3">Reports</th>
            <th class="w-name c4">Types</th>
            <th class="w-state c3" title="The latest notification">
              Latest
            </th>
          </>
        }
        row={(hook) => (
          <ReceiverRow key={hook.name} hook={hook} />
        )}
        note={({ items }) => (
          <>
            {plural(items.length, "receiver")}. As a command: <code>perdure webhooks</code>
          </>
        )}
      />
      <AskUrl />
      {creating.value && <Settings fresh={fresh} close={() => (creating.value = false)} done={list.again} />}
    </>
  );
}

/** A number of notifications of a receiver, which leads to them. */
function Amount({ hook, state, n }: { hook: Webhook; state: "pending" | "dead"; n: number }) {
  if (n === 0) return <span class="muted">0</span>;
  return (
    <a href={link.webhooks(hook.name, { state })} aria-label={`${numberText(n)} ${state} of ${hook.name}`}>
      {numberText(n)}
    </a>
  );
}

function ReceiverRow({ hook }: { hook: Webhook }) {
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
          {hook.pending > 0 && `${numberText(hook.pending)} pending. `}
          {hook.dead > 0 && `${numberText(hook.dead)} dead. `}
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
      </td>
      <td class="num c2">
        <Amount hook={hook} state="pending" n={hook.pending} />
      </td>
      <td class="num c2">
        <Amount hook={hook} state="dead" n={hook.dead} />
      </td>
      <td class="c3" title={on}>
        {on}
      </td>
      <td class="c4" title={types}>
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

/** What is done to a receiver, each in a dialog. */
type Draft = "edit" | "test" | "pause" | "resume" | "rotate" | "resend" | "delete" | "close";

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
  const shown = acts
    .filter(([act]) => (act === "pause" ? hook.state !== "paused" : act === "resume" ? hook.state === "paused" || hook.state === "failing" : act !== "rotate" || !hook.stream))
    .map(([act, text, right]): (typeof acts)[number] => [act, act === "resume" && hook.state === "failing" ? "Try again …" : text, right]);
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
      <Deliveries key={place.value.query.get("state") ?? ""} name={hook.name} paused={hook.state === "paused"} turn={turn.value} />
      <AsOf at={page.at} />
      {draft.value === "edit" && <Settings hook={hook} fresh={fresh} close={form.close} done={form.done} />}
      {draft.value === "test" && <Test {...form} />}
      {draft.value === "pause" && <Pause {...form} />}
      {draft.value === "resume" && <Resume {...form} />}
      {draft.value === "rotate" && <Rotate {...form} fresh={fresh} />}
      {draft.value === "resend" && <Resend {...form} name={name} />}
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
              {more && may("access") && (
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
        <dd>
          <Amount hook={hook} state="pending" n={hook.pending} />
        </dd>
        <dt>dead</dt>
        <dd>
          <Amount hook={hook} state="dead" n={hook.dead} />
        </dd>
        <dt>changed</dt>
        <dd>
          <Ago at={hook.updatedAt} />, created <Ago at={hook.createdAt} />
        </dd>
      </dl>
    </div>
  );
}

const states = ["pending", "delivered", "dead"];

function Deliveries({ name, paused = false, turn }: { name: string; paused?: boolean; turn: number }) {
  const state = place.value.query.get("state") ?? "";
  const url = (cursor?: string) => callUrl(["v1", "webhooks", name, "deliveries"], queryText({ state, limit: String(pageSize), cursor }));
  const first = useLoad<PageDelivery>(url(), 3000);
  const list = useSignal(emptyList<Delivery, PageDelivery>()); // the first page, whose rows stay where they are
  const replace = useRef(false);
  const older = useOlder<Delivery, PageDelivery>(list.value.shown, url);
  const startAgain = () => {
    replace.current = true;
    older.forget();
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
  const items = [...list.value.rows, ...older.items];
  const total = plural(items.length, "notification") + (older.nextCursor ? ", and more that are older" : "");
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
        <p class="fine">{state ? `No notification is ${state}.` : isUrl(name) ? "Nothing was reported to this URL." : "Nothing was reported to this receiver yet. A test shows whether it can be reached."}</p>
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
                <DeliveryRow key={one.id} one={one} gone={gone.has(one.id)} paused={paused} />
              ))}
            </tbody>
          </table>
          <div class="below">
            {older.nextCursor && items.length < mostRows && (
              <button type="button" onClick={older.more} disabled={older.loading}>
                {older.loading ? "Loading …" : "More"}
              </button>
            )}
            <span class="muted small">
              {total}
              {older.nextCursor && items.length >= mostRows && ". The page shows no more: choose a state"}. They are kept for 14 days after their end. As a command: <code>perdure webhooks deliveries {shellWord(name)}</code>
            </span>
            <AsOf at={first.at} />
            {older.problem && <ProblemNote problem={older.problem} />}
          </div>
        </>
      )}
    </section>
  );
}

/** perdure.job.done without what all types have. */
const typeText = (type: string) => type.replace(/^perdure\./, "");

/** gone: it no longer has the state that the list shows. */
function DeliveryRow({ one, gone, paused }: { one: Delivery; gone: boolean; paused: boolean }) {
  return (
    <tr>
      <td>
        <State mark={gone ? { ...deliveryMark(one), tone: "calm" } : deliveryMark(one)} />
        {gone && <div class="muted small">no longer {one.state}</div>}
      </td>
      <td class="text" title={`${one.type} (${one.id})`}>
        <bdi>{typeText(one.type)}</bdi>
        <div class="muted small c2 cut nowrap">
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
      <td class="c3">
        {one.state === "pending" && paused ? "when resumed" : one.state === "pending" && one.nextAttempt && Date.parse(one.nextAttempt) <= now.value ? "due" : <Ago at={one.nextAttempt ?? one.endedAt} />}
      </td>
      <td class="c2 text" title={one.error}>
        {one.error ? <bdi class="clamp">{one.error}</bdi> : <span class="muted">–</span>}
      </td>
    </tr>
  );
}
