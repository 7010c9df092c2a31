// The parts of the dialogs that change something: their frame, and the fields that several of them have.
import { signal, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren, Ref } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { curlToken, hasToken, me } from "./access.ts";
import { Problem } from "./api.ts";
import { showJson, type Json } from "./json.ts";
import { onLeave } from "./place.ts";
import { stateName } from "./state.ts";
import type { Job } from "./types.ts";
import { Copy, Icon, shellWord } from "./widgets.tsx";

interface FormDialogProps {
  title: string;
  /** The button that sends the form. */
  send: string;
  /** Whether the form can be sent. */
  ready: boolean;
  sending: boolean;
  submit: () => void;
  close: () => void;
  /** Whether the act ends or reverses work. */
  warn?: boolean;
  cancel?: Ref<HTMLButtonElement>;
  /** More buttons. */
  buttons?: ComponentChildren;
  children: ComponentChildren;
}

/** A dialog with a form. It is open as long as it is in the page. */
export function FormDialog({ title, send, ready, sending, submit, close, warn, cancel, buttons, children }: FormDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = dialog.current!;
    const opener = document.activeElement as HTMLElement | null;
    shown.showModal();
    firstField(shown)?.focus();
    onLeave.add(close);
    return () => {
      onLeave.delete(close);
      shown.close(); // what is behind an open dialog takes no focus
      giveBack(opener);
    };
  }, []);
  return (
    <dialog class="act" ref={dialog} aria-labelledby="form-title" onClose={(event) => event.currentTarget.isConnected && close()}>
      <header>
        <h2 id="form-title" class="clamp">
          <bdi>{title}</bdi>
        </h2>
        <button type="button" class="bare" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <form
        class="stack inner"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        {children}
        <div class="buttons">
          <button type="submit" class={warn ? "main warn" : "main"} disabled={sending || !ready}>
            {sending ? "Sending …" : send}
          </button>
          {buttons}
          <button type="button" ref={cancel ?? null} onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** The field that an operator fills in first: the one that the act is about, else one that is needed, else one for text. */
function firstField(dialog: HTMLElement): HTMLElement | undefined {
  const fields = [...dialog.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>("input:not([type]), textarea")];
  return fields.find((field) => field.dataset.first !== undefined) ?? fields.find((field) => field.required && !field.value) ?? fields.find((field) => field.matches("input"));
}

/** How often, and for how many milliseconds each, the place of the focus is watched after an act: its button may go. */
const watches = 12;
const watchEvery = 250;

/** Gives the focus back to the button that opened a dialog, or to its menu, or to the page once the button is gone. */
function giveBack(opener: HTMLElement | null, left = watches): void {
  const at = document.activeElement;
  if (at && at !== document.body && at !== opener && left < watches) return; // the operator has gone on
  const menu = opener?.closest("details:not([open])")?.querySelector<HTMLElement>("summary");
  const to = opener?.isConnected && opener !== document.body ? (menu ?? opener) : document.querySelector<HTMLElement>("main");
  if (to !== at) to?.focus({ preventScroll: true });
  if (to && to !== document.activeElement) document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true }); // it is disabled now
  if (left > 0 && to === opener) setTimeout(() => giveBack(opener, left - 1), watchEvery);
}

const authorKey = "perdure.author";

function keptAuthor(): string {
  try {
    return localStorage.getItem(authorKey) ?? "";
  } catch {
    return ""; // the browser keeps nothing for this page
  }
}

/** The name of the operator, for the history. This browser keeps it. */
export const author = signal(keptAuthor());

/** The header that names the operator, if the name is known and the server does not know better. */
export function authorHeaders(): Record<string, string> {
  const name = hasToken() ? "" : author.peek().trim();
  return name ? { "Perdure-Author": headerText(name) } : {};
}

export function keepAuthor(): void {
  try {
    localStorage.setItem(authorKey, author.peek().trim());
  } catch {
    // it holds until the page is closed
  }
}

/** A text as the value of a header: its bytes in UTF-8, which fetch takes as characters. */
function headerText(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** The fields for the reason and the operator's name. */
export function ReasonFields({ reason, required, title }: { reason: Signal<string>; required: boolean; title: string }) {
  return (
    <div class="split">
      <label class="stack">
        <span class="muted">{title}</span>
        <input required={required} maxLength={1000} value={reason.value} onInput={(event) => (reason.value = event.currentTarget.value)} />
      </label>
      {hasToken() ? (
        <p class="stack">
          <span class="muted">Recorded as</span>
          <bdi class="recorded">{me.value!.name}</bdi>
        </p>
      ) : (
        <label class="stack">
          <span class="muted">Your name, for the history</span>
          <input maxLength={100} autocomplete="username" value={author.value} onInput={(event) => (author.value = event.currentTarget.value)} />
        </label>
      )}
    </div>
  );
}

/** The fields of acts on steps. Values of users are sent as they are written: reading them would round large numbers. */
export interface StepFields {
  as: Signal<"done" | "undone">;
  value: Signal<string>;
  newKey: Signal<boolean>;
}

/** Which acts have which of these fields. ofStep: whether the act is on a step that is known. */
function fieldsOfAct(verb: string, as: string, ofStep: boolean): { as: boolean; value: "output" | "input" | "data" | undefined; newKey: boolean } {
  const input = verb === "edit" || (verb === "resume" && ofStep);
  return { as: verb === "settle", value: verb === "settle" && as === "done" ? "output" : input ? "input" : verb === "approve" ? "data" : undefined, newKey: input };
}

/** The fields as the members of a JSON object. */
export function fieldMembers(verb: string, ofStep: boolean, { as, value, newKey }: StepFields): string[] {
  const has = fieldsOfAct(verb, as.value, ofStep);
  const members: string[] = [];
  if (has.as) members.push(`"as": "${as.value}"`);
  if (has.value && value.value.trim()) members.push(`"${has.value}": ${value.value}`);
  if (has.newKey && newKey.value) members.push(`"newKey": true`);
  return members;
}

/** The same fields as flags of the command line. */
export function fieldFlags(verb: string, ofStep: boolean, { as, value, newKey }: StepFields): string[] {
  const has = fieldsOfAct(verb, as.value, ofStep);
  const flags: string[] = [];
  if (has.as) flags.push("--as", as.value);
  if (has.value && value.value.trim()) flags.push(`--${has.value}`, value.value.trim());
  if (has.newKey && newKey.value) flags.push("--new-key");
  return flags;
}

export function StepFieldInputs({ verb, ofStep, fields: { as, value, newKey }, job, input = "" }: { verb: string; ofStep: boolean; fields: StepFields; job?: Pick<Job, "states">; input?: string }) {
  const has = fieldsOfAct(verb, as.value, ofStep);
  return (
    <>
      {has.as && (
        <fieldset class="choices">
          <legend>The step is</legend>
          {(["done", "undone"] as const).map((state) => (
            <label key={state}>
              <input type="radio" name="as" checked={as.value === state} onChange={() => (as.value = state)} /> <bdi>{job ? stateName(job, state) : state}</bdi>
            </label>
          ))}
        </fieldset>
      )}
      {has.value && (
        <label class="stack">
          <span class="muted">{has.value === "output" ? "Output, as JSON (optional)" : has.value === "data" ? "Data for the step's output, as JSON (optional)" : verb === "edit" ? "Input, as JSON" : "Another input, as JSON (empty: as it is now)"}</span>
          <textarea rows={5} data-first={verb === "edit" ? "" : undefined} placeholder={verb === "resume" && input ? input : undefined} spellcheck={false} autocomplete="off" wrap="off" value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />
        </label>
      )}
      {verb === "resume" && has.value && input && !value.value && (
        <button type="button" class="link" onClick={() => (value.value = input)}>
          Begin with the present input
        </button>
      )}
      {has.newKey && (
        <label title="An agent knows by the key which step it has run before. Under a new key it does the work again, whatever earlier runs have done.">
          <input type="checkbox" checked={newKey.value} onChange={(event) => (newKey.value = event.currentTarget.checked)} /> Start again under a new key (only if no earlier run had an effect)
        </label>
      )}
    </>
  );
}

/** The input of a step as the text that an operator edits. */
export function inputText(input: unknown): string {
  return input === undefined ? "" : showJson(input as Json);
}

/** The same act as a command, and optionally for curl. */
export function CommandLine({ command, curl }: { command: string; curl?: string }) {
  return (
    <div class="commands">
      <code>{command}</code>
      <Copy text={command} what="the command" />
      {curl && <Copy text={curl} what="as curl" label="curl" />}
    </div>
  );
}

/** Sends a change, and shows a refusal. */
export function useSend(): { sending: Signal<boolean>; problem: Signal<Problem | undefined>; send: (work: () => Promise<void>) => Promise<void> } {
  const sending = useSignal(false);
  const problem = useSignal<Problem | undefined>(undefined);
  const send = async (work: () => Promise<void>) => {
    if (sending.value) return;
    sending.value = true;
    problem.value = undefined;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      sending.value = false;
    }
  };
  return { sending, problem, send };
}

/** Names that are separated by commas or spaces. */
export const namesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** A field for several names. */
export function NamesField({ title, value, example, required }: { title: string; value: Signal<string>; example: string; required?: boolean }) {
  return (
    <label class="stack">
      <span class="muted">{title}</span>
      <input required={required} autocomplete="off" spellcheck={false} placeholder={example} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />
    </label>
  );
}

/** A call of the API that changes something, for curl. */
export function curlText(url: string, body: string): string {
  const name = !hasToken() && author.value.trim() ? ` -H ${shellWord(`Perdure-Author: ${author.value.trim()}`)}` : "";
  return `curl -fsS -X POST ${shellWord(url)} -H 'Content-Type: application/json'${curlToken()}${name} -d ${shellWord(body)}`;
}

export interface Previewed<T> {
  preview: T | undefined;
  problem: Problem | undefined;
  /** Whether the preview is that of the fields as they are now. */
  current: boolean;
}

/** Asks for a preview, and again when the fields, or the state of what the act is on, have changed, or the user has logged in again. Fields that are undefined cannot be previewed. */
export function usePreview<T>(fields: string | undefined, ask: () => Promise<T>, state = ""): Previewed<T> & { refuse: (problem: Problem) => void } {
  const latest = useSignal<{ of?: string; preview?: T; problem?: Problem }>({});
  useEffect(() => {
    if (fields === undefined) {
      latest.value = {};
      return;
    }
    let over = false;
    const timer = setTimeout(() => {
      ask().then(
        (preview) => {
          if (!over) latest.value = { of: fields, preview };
        },
        (error: unknown) => {
          if (!over) latest.value = { of: fields, problem: error instanceof Problem ? error : new Problem(0, "unknown", String(error)) };
        },
      );
    }, latest.peek().of === undefined ? 0 : typingPause);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [fields, useSeldom(state), me.value]);
  const { of, preview, problem } = latest.value;
  return { preview, problem, current: of !== undefined && of === fields && preview !== undefined, refuse: (problem) => (latest.value = { ...(of !== undefined && { of }), problem }) };
}

/** A text as it was at most so many milliseconds ago: a job may move all the time. */
function useSeldom(text: string): string {
  const shown = useSignal(text);
  const latest = useRef(text);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  latest.current = text;
  useEffect(() => {
    if (text === shown.peek() || timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      shown.value = latest.current;
    }, seldom);
  }, [text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown.value;
}

const seldom = 500;

/** How long nothing must be entered before a preview is asked for. */
const typingPause = 300;
