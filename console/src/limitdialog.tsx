// The dialog that sets or removes a limit. The limit agent:NAME bounds the runs of an agent; 0 pauses it.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, callUrl, Problem, serverAddress } from "./api.ts";
import { CommandLine, FormDialog } from "./form.tsx";
import { openLimit, type LimitForm } from "./limit.tsx";
import type { KeyLimit, Limit, LimitSettings } from "./types.ts";
import { plural, ProblemNote, shellWord } from "./widgets.tsx";

export function LimitDialog() {
  const form = openLimit.value;
  return form ? <Dialog key={form.name} form={form} /> : null;
}

/** What a limit of this name bounds. */
export function limitMeaning(name: string): string {
  if (name.startsWith("agent:")) return `At most so many runs of the agent ${name.slice(6)} are in progress at once. 0 pauses the agent.`;
  if (name.startsWith("job:")) return `At most so many jobs of the type ${name.slice(4)} are in progress at once. 0 starts no more of them.`;
  return "At most so many permits are held at once by steps that name this limit. 0 pauses these steps.";
}

const whole = /^\d{1,9}$/;
const rates = /^[1-9]\d{0,5}\/[smhd]$/;

/** The bound that two fields describe. A burst stays as long as its rate does. */
function boundOf(max: string, rate: string, had: KeyLimit | undefined): KeyLimit {
  return { ...(max && { max: Number(max) }), ...(rate && { rate, ...(had?.burst && had.rate === rate && { burst: had.burst }) }) };
}

function Dialog({ form }: { form: LimitForm }) {
  const cancel = useRef<HTMLButtonElement>(null);
  const name = useSignal(form.name);
  const max = useSignal(form.limit?.max === undefined ? "" : String(form.limit.max));
  const rate = useSignal(form.limit?.rate ?? "");
  const perKey = useSignal(String(form.limit?.perKey?.max ?? ""));
  const keyRate = useSignal(form.limit?.perKey?.rate ?? "");
  const inOrder = useSignal(form.limit?.order === "submitted");
  const current = useSignal(form.limit);
  const problem = useSignal<Problem | undefined>(undefined);
  const sending = useSignal(false);
  const own = !/^(agent|job):/.test(name.value);
  useEffect(() => {
    if (form.limit || !form.name) return;
    // A page that does not list limits gives none.
    const leave = new AbortController();
    call<{ items: Limit[] }>(callUrl(["v1", "limits"]), { signal: leave.signal }).then(
      ({ items }) => {
        const found = items.find((limit) => limit.name === form.name);
        if (!found) return;
        current.value = found;
        if (!max.peek()) max.value = found.max === undefined ? "" : String(found.max);
        if (!rate.peek()) rate.value = found.rate ?? "";
        if (!perKey.peek()) perKey.value = String(found.perKey?.max ?? "");
        if (!keyRate.peek()) keyRate.value = found.perKey?.rate ?? "";
        inOrder.value = found.order === "submitted";
      },
      () => undefined, // the dialog works without
    );
    return () => leave.abort();
  }, []);
  const close = () => (openLimit.value = undefined);
  const is = (form: RegExp, value: string) => value === "" || form.test(value);
  const keys = own ? current.value?.keys : undefined;
  const valid =
    name.value.trim() !== "" && is(whole, max.value) && is(rates, rate.value) && (!own || (is(whole, perKey.value) && is(rates, keyRate.value))) && Boolean(max.value || rate.value || (own && (perKey.value || keyRate.value || keys)));
  const send = async (init: RequestInit) => {
    if (sending.value) return;
    sending.value = true;
    problem.value = undefined;
    try {
      await call<unknown>(callUrl(["v1", "limits", name.value.trim()]), init);
      close();
      form.done?.();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
      cancel.current?.focus();
    } finally {
      sending.value = false;
    }
  };
  const ordered = own && inOrder.value && perKey.value === "1";
  const settings = (): LimitSettings => {
    const ofKey = boundOf(perKey.value, keyRate.value, current.value?.perKey);
    return { ...boundOf(max.value, rate.value, current.value), ...(own && Object.keys(ofKey).length > 0 && { perKey: ofKey }), ...(ordered && { order: "submitted" as const }), ...(keys && { keys }) };
  };
  const server = ` --server ${shellWord(serverAddress)}`;
  const flag = (name: string, value: string | number | undefined) => (value ? ` --${name} ${value}` : "");
  const { burst, perKey: ofKey } = settings();
  const command = `perdure limits set ${shellWord(name.value.trim() || "NAME")}${max.value ? ` ${max.value}` : ""}${flag("rate", rate.value)}${flag("burst", burst)}${own ? flag("per-key", perKey.value) + flag("key-rate", keyRate.value) + flag("key-burst", ofKey?.burst) + (ordered ? " --order submitted" : "") : ""}${server}`;
  const used = current.value?.used;
  return (
    <FormDialog
      title={form.name ? `Limit ${form.name}` : "A new limit"}
      send="Set the limit"
      ready={valid}
      sending={sending.value}
      submit={() => valid && void send({ method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings()) })}
      close={close}
      cancel={cancel}
      buttons={
        current.value && (
          <button type="button" disabled={sending.value} onClick={() => void send({ method: "DELETE" })}>
            Remove the limit
          </button>
        )
      }
    >
      {!form.name && (
        <label class="stack">
          <span class="muted">Name: agent:NAME, job:TYPE, or one that steps name</span>
          <input required maxLength={200} autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
        </label>
      )}
      <p class="muted">
        <bdi>{limitMeaning(name.value)}</bdi>
      </p>
      <div class="split even">
        <label class="stack">
          <span class="muted">{own ? "At most (empty: no bound on all)" : "At most"}</span>
          <input inputMode="numeric" pattern="[0-9]{1,9}" autocomplete="off" value={max.value} onInput={(event) => (max.value = event.currentTarget.value.trim())} />
        </label>
        {own && (
          <label class="stack">
            <span class="muted">For each key (empty: no bound)</span>
            <input inputMode="numeric" pattern="[0-9]{1,9}" autocomplete="off" value={perKey.value} onInput={(event) => (perKey.value = event.currentTarget.value.trim())} />
          </label>
        )}
      </div>
      <div class="split even">
        <label class="stack">
          <span class="muted">Rate, such as 5/s or 300/m (empty: none)</span>
          <input pattern="[1-9][0-9]{0,5}/[smhd]" autocomplete="off" spellcheck={false} value={rate.value} onInput={(event) => (rate.value = event.currentTarget.value.trim())} />
        </label>
        {own && (
          <label class="stack">
            <span class="muted">Rate for each key</span>
            <input pattern="[1-9][0-9]{0,5}/[smhd]" autocomplete="off" spellcheck={false} value={keyRate.value} onInput={(event) => (keyRate.value = event.currentTarget.value.trim())} />
          </label>
        )}
      </div>
      {own && perKey.value === "1" && (
        <label>
          <input type="checkbox" checked={inOrder.value} onInput={(event) => (inOrder.value = event.currentTarget.checked)} /> The jobs of a key in the order of submission
        </label>
      )}
      {keys && <p class="muted">{plural(Object.keys(keys).length, "key")} with bounds of their own: these stay.</p>}
      <section aria-live="polite">
        <h3>What would happen now</h3>
        {problem.value ? (
          <ProblemNote problem={problem.value} />
        ) : !valid ? (
          <p class="muted">Enter a whole number, or a rate such as 5/s.</p>
        ) : (
          <p>
            {used === undefined ? "The limit is set." : effect(used, max.value === "" ? undefined : Number(max.value))} It takes effect at once on all nodes.
          </p>
        )}
      </section>
      <CommandLine command={command} />
    </FormDialog>
  );
}

/** What a maximum means for the permits that are held now. */
function effect(used: number, max: number | undefined): string {
  if (max === undefined) return `${plural(used, "permit")} held now; all of them together are not bounded.`;
  if (used > max) return `${plural(used, "permit")} held now: nothing more begins until fewer than ${max || 1} are held${max === 0 ? " and the limit is raised" : ""}. What runs continues.`;
  return `${plural(used, "permit")} held now, ${max - used} free.`;
}
