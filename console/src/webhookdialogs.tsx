// The dialogs that create, change, test and delete receivers of notifications.
import { signal, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { call, callUrl, serverAddress } from "./api.ts";
import { authorHeaders, CommandLine, FormDialog, useSend } from "./form.tsx";
import { goOnFromHere } from "./place.ts";
import { link } from "./router.ts";
import { Secret } from "./secret.tsx";
import type { Alert, Webhook } from "./types.ts";
import { hostOf, numberText } from "./webhook.tsx";
import { actMessage, plural, ProblemNote, shellWord } from "./widgets.tsx";

type EventKind = NonNullable<Webhook["on"]>[number];

/** The changes that a receiver may name, and what they are. */
const kindTexts: Record<EventKind, string> = {
  received: "the job was submitted",
  running: "a step of the job was dispatched",
  parked: "the job waits for an operator",
  done: "all steps are done",
  undoing: "the job is to be undone",
  undone: "all steps are undone",
  givenUp: "an operator closed the job as it was",
  alertRaised: "an alert of a job was raised",
  alertClosed: "an alert of a job was closed",
  bulkFinished: "a bulk act is done",
};
const kinds = Object.entries(kindTexts) as [kind: EventKind, what: string][];
const defaultKinds: EventKind[] = ["parked", "done", "undone"];

/** A receiver whose secret is new, until the operator has seen it. */
export type Fresh = Signal<Webhook | undefined>;

const server = () => ` --server ${shellWord(serverAddress)}`;

const json = { "Content-Type": "application/json" };

export interface DialogProps {
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

const post = <T,>({ name }: Pick<Webhook, "name">, verb: string, body: object = {}) => call<T>(callUrl(["v1", "webhooks", name, verb]), { method: "POST", headers: { ...json, ...authorHeaders() }, body: JSON.stringify(body) });

export function Test({ hook, close, done }: DialogProps) {
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

export function Pause({ hook, close, done }: DialogProps) {
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

export function Resume({ hook, close, done }: DialogProps) {
  const run = async () => {
    await post<Webhook>(hook, "resume");
    close();
    done();
  };
  if (hook.state === "failing") {
    return (
      <Ask title={`Try ${hook.name} again`} send="Try again now" run={run} close={close} command={`perdure webhooks resume ${hook.name}`}>
        <p>Notifications that are to be sent again later are sent now.</p>
      </Ask>
    );
  }
  return (
    <Ask title={`Resume ${hook.name}`} send="Resume the receiver" run={run} close={close} command={`perdure webhooks resume ${hook.name}`}>
      <p>{hook.pending > 0 ? `${numberText(hook.pending)} pending ${hook.pending === 1 ? "notification is" : "notifications are"} delivered.` : "What is stored from now on is delivered. Nothing is pending."}</p>
    </Ask>
  );
}

export function Rotate({ hook, close, done, fresh }: DialogProps & { fresh: Fresh }) {
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

/** name: that of a receiver, or a URL that definitions name. */
export function Resend({ name, close, done }: Omit<DialogProps, "hook"> & { name: string }) {
  const since = useSignal("3d");
  const run = async () => {
    const { resent } = await post<{ resent: number }>({ name }, "resend", { since: since.value.trim() });
    actMessage.value = resent === 0 ? "There are no dead notifications of this time." : `${plural(resent, "dead notification")} ${resent === 1 ? "is" : "are"} pending again.${resent >= 10_000 ? " There may be more: resend again." : ""}`;
    close();
    done();
  };
  return (
    <Ask title={`Resend to ${hostOf(name).host || name}`} send="Send dead ones again" run={run} close={close} command={`perdure webhooks resend ${shellWord(name)} --since ${shellWord(since.value.trim() || "AGO")}`}>
      <p>Dead notifications are sent again, at most 10,000 at once, and keep their ids. Each has another three days.</p>
      <label class="stack">
        <span class="muted">Of changes in the last 3d, say, or since a time such as 2026-01-02T15:04:05Z</span>
        <input required data-first="" autocomplete="off" spellcheck={false} value={since.value} onInput={(event) => (since.value = event.currentTarget.value)} />
      </label>
    </Ask>
  );
}

export function Delete({ hook, close }: DialogProps) {
  const run = async () => {
    const goOn = goOnFromHere();
    await call<undefined>(callUrl(["v1", "webhooks", hook.name]), { method: "DELETE", headers: authorHeaders() });
    actMessage.value = `The receiver ${hook.name} is deleted.`;
    close();
    goOn(link.webhooks(), true);
  };
  return (
    <Ask title={`Delete ${hook.name}`} send="Delete the receiver" warn run={run} close={close} command={`perdure webhooks rm ${hook.name}`}>
      <p>
        {hook.pending > 0 ? `${numberText(hook.pending)} pending ${hook.pending === 1 ? "notification is" : "notifications are"} dead then. ` : ""}
        {hook.stream ? "Its readers are refused, and those of a new stream of this name begin with a gap. " : "Its secret is gone: a new receiver of this name has another one. "}
        Changes are no longer reported to it. Jobs whose definition names it go on without.
      </p>
    </Ask>
  );
}

export function CloseAlert({ hook, alert, close, done }: DialogProps & { alert: Alert }) {
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

/** Types of jobs, one a line. */
const typesOf = (text: string) => text.split("\n").map((type) => type.trim()).filter(Boolean);

export function Settings({ hook, fresh, close, done }: SettingsProps) {
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
  const flags = ["--on", chosen.join(","), ...(settings.types ? ["--types", settings.types.join(",")] : hook ? ["--all-types"] : []), ...(settings.format || (hook && !stream.value) ? ["--format", format.value] : [])];
  const command = ["perdure", "webhooks", hook ? "set" : "create", called || "NAME", stream.value ? "--stream" : url.value.trim() || "URL", ...flags].map(shellWord).join(" ") + server();
  const ready = called !== "" && (stream.value || url.value.trim() !== "") && chosen.length > 0;
  const submit = () =>
    send(async () => {
      const headers = { ...json, ...authorHeaders() };
      const goOn = goOnFromHere();
      if (hook) {
        await call<Webhook>(callUrl(["v1", "webhooks", hook.name]), { method: "PUT", headers, body: JSON.stringify(settings) });
        actMessage.value = `The settings of ${hook.name} are replaced.`;
        close();
      } else {
        const created = await call<Webhook>(callUrl(["v1", "webhooks"]), { method: "POST", headers, body: JSON.stringify({ name: called, ...settings }) });
        name.value = url.value = types.value = "";
        close();
        if (created.secret) fresh.value = created;
        else goOn(link.webhooks(created.name)); // its page says how a stream is read
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
export function Created({ hook, close }: { hook: Webhook; close: () => void }) {
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
