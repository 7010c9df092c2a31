// The dialogs that drain, release and remove a host. The server has no preview of these acts: what they would do follows
// from the host as the page knows it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { call, callUrl, serverAddress } from "./api.ts";
import { authorHeaders, CommandLine, curlText, FormDialog, keepAuthor, ReasonFields, useSend } from "./form.tsx";
import { goOnFromHere } from "./place.ts";
import { link } from "./router.ts";
import type { Host } from "./types.ts";
import { actMessage, plural, ProblemNote, shellWord } from "./widgets.tsx";

export type HostAct = "drain" | "ready" | "delete";

export interface HostDialogProps {
  host: Host;
  close: () => void;
  done: () => void;
}

interface AskProps {
  title: string;
  send: string;
  warn?: boolean;
  ready?: boolean;
  run: () => Promise<void>;
  close: () => void;
  command: string;
  curl?: string;
  effect: ComponentChildren;
  children?: ComponentChildren;
}

/** A dialog that asks before a call, and says what it would do. */
function Ask({ title, send, warn = false, ready = true, run, close, command, curl, effect, children }: AskProps) {
  const { sending, problem, send: start } = useSend();
  return (
    <FormDialog title={title} send={send} ready={ready} warn={warn} sending={sending.value} submit={() => ready && void start(run)} close={close}>
      {children}
      <section aria-live="polite">
        <h3>What would happen now</h3>
        {problem.value ? <ProblemNote problem={problem.value} /> : effect}
      </section>
      <CommandLine command={`${command} --server ${shellWord(serverAddress)}`} {...(curl && { curl })} />
    </FormDialog>
  );
}

const post = (name: string, verb: string, body: string) => call<Host>(callUrl(["v1", "hosts", name, verb]), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body });

/** A length of time as the API reads it, such as 90s, 10m or 2h30m; d is a day. */
const duration = /^(?:0|(?:\d+(?:\.\d+)?(?:ms|[smhd]))+)$/;

export function Drain({ host, close, done }: HostDialogProps) {
  const deadline = useSignal("10m");
  const reason = useSignal("");
  const valid = duration.test(deadline.value);
  const body = () => `{"deadline": ${JSON.stringify(deadline.value)}, "reason": ${JSON.stringify(reason.value)}}`;
  const run = async () => {
    keepAuthor();
    const now = await post(host.name, "drain", body());
    actMessage.value = now.runs > 0 ? `The host ${host.name} gets no more runs. ${plural(now.runs, "run")} of it may go on until the deadline.` : `The host ${host.name} is drained.`;
    close();
    done();
  };
  const words = ["perdure", "hosts", "drain", host.name, "--deadline", deadline.value || "10m", ...(reason.value ? ["--reason", reason.value] : [])];
  return (
    <Ask
      title={`Drain ${host.name}`}
      send="Drain the host"
      warn
      ready={valid}
      run={run}
      close={close}
      command={words.map(shellWord).join(" ")}
      curl={curlText(callUrl(["v1", "hosts", host.name, "drain"]), body())}
      effect={
        !valid ? (
          <p class="muted">Enter a length of time, such as 90s, 10m or 2h.</p>
        ) : host.runs === 0 ? (
          <p>The host has no run. It is drained at once, and gets none until it is made ready again.</p>
        ) : (
          <p>
            The host gets no more runs. {host.runs === 1 ? "The run that it has may go on" : `The ${host.runs} runs that it has may go on`} for {deadline.value}. Then its process stops what is left, and the steps run on other hosts.
          </p>
        )
      }
    >
      <label class="stack">
        <span class="muted">How long its runs may go on</span>
        <input required autocomplete="off" spellcheck={false} maxLength={20} value={deadline.value} onInput={(event) => (deadline.value = event.currentTarget.value.trim())} />
      </label>
      <ReasonFields reason={reason} required={false} title="Reason (optional)" />
    </Ask>
  );
}

export function Ready({ host, close, done }: HostDialogProps) {
  const run = async () => {
    await post(host.name, "ready", "{}");
    actMessage.value = `The host ${host.name} gets runs again.`;
    close();
    done();
  };
  return (
    <Ask title={`End the drain of ${host.name}`} send="Make the host ready" run={run} close={close} command={`perdure hosts ready ${shellWord(host.name)}`} curl={curlText(callUrl(["v1", "hosts", host.name, "ready"]), "{}")} effect={<p>{host.state === "silent" ? "The drain ends. The host gets runs as soon as its process registers again." : "The host gets runs again, from its next claim on."}</p>} />
  );
}

export function Remove({ host, close, done }: HostDialogProps) {
  const run = async () => {
    const goOn = goOnFromHere();
    await call<undefined>(callUrl(["v1", "hosts", host.name]), { method: "DELETE", headers: authorHeaders() });
    actMessage.value = `The host ${host.name} is removed.`;
    close();
    done();
    goOn(link.hosts());
  };
  return <Ask title={`Remove ${host.name}`} send="Remove the host" warn run={run} close={close} command={`perdure hosts rm ${shellWord(host.name)}`} effect={<p>The host is no longer listed. If its process is still there, it registers the host again.</p>} />;
}

/** Why a host cannot be removed; empty if it can. */
export function whyKept(host: Host): string {
  if (host.runs > 0) return "the host has runs";
  return host.state === "silent" || host.state === "drained" ? "" : "only a host that is silent or drained can be removed";
}
