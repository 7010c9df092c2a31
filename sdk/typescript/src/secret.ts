// Secrets in inputs: resolved where the agent runs, and removed from what a run reports.
//
// A definition refers to a secret with ${secret.NAME}, and a run says at which places of its input it does: `secrets`, a
// list of JSON Pointers. The references there are replaced, and no others, because an input also has values of other origin.

import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";

import { NoEffect, Rejected } from "./errors.ts";
import { bytes, parse, stringify } from "./json.ts";

const variable = "PERDURE_SECRET_";
export const maxSecretBytes = 64 << 10;
const maxTogether = 4 * maxSecretBytes; // of the secrets of one run: what it reports is searched for each of them in many forms
const minRedacted = 4; // bytes: a shorter value occurs by chance
const escapeLevels = 3; // how many times a form may be quoted again
const maxEscaped = 8 << 10; // bytes of a value above which it is only once
const maxLines = 256; // lines of one value that count for themselves
const minLine = 16; // bytes from which on each line of a value is redacted for itself
const reference = /\$\{secret\.([A-Z][A-Z0-9_]{0,127})\}/g;

/** An input with the values of its secrets, and what removes them from the report. */
export interface Resolved {
  input: unknown;
  redactor?: Redactor;
}

/** Where a host finds secrets: the files of a directory, and environment variables. They are read for each run. */
export class Secrets {
  readonly #dir: string | undefined;
  readonly #env: Readonly<Record<string, string | undefined>>;

  constructor(dir?: string, env: Readonly<Record<string, string | undefined>> = process.env) {
    if (dir !== undefined && !statSync(dir, { throwIfNoEntry: false })?.isDirectory()) {
      throw new RangeError(`secretsDir: there is no directory ${dir}`);
    }
    this.#dir = dir;
    this.#env = env;
  }

  /** Resolves the references at the pointers. A missing secret is a fault of the configuration, which trying again does not
   * mend: the run is rejected. */
  resolve(input: unknown, pointers: readonly string[]): Resolved {
    if (pointers.length === 0) return { input };
    const values = new Map<string, string>();
    const missing = new Map<string, string>();
    let total = 0;
    const valueOf = (name: string): string => {
      if (!values.has(name) && !missing.has(name)) {
        let found = this.get(name);
        if ("value" in found && (total += bytes(found.value)) > maxTogether) {
          found = { missing: `secret ${name}: the secrets of this input have more than ${maxTogether} bytes together` };
        }
        if ("value" in found) values.set(name, found.value);
        else missing.set(name, found.missing);
      }
      return values.get(name) ?? "";
    };
    const filled = fill(input, pointers, valueOf);
    if (missing.size > 0) throw rejected([...missing.values()].join("; "));
    const redactor = Redactor.of(values);
    return { input: filled, ...(redactor ? { redactor } : {}) };
  }

  /** The value of a secret, or why there is none, in a text without the value and without a path. */
  get(name: string): { value: string } | { missing: string } {
    if (this.#dir !== undefined) {
      const found = this.#read(this.#dir, name);
      if (found) return found;
    }
    const value = this.#env[variable + name];
    if (value !== undefined) return checked(name, Buffer.from(value));
    return { missing: this.#dir === undefined
      ? `secret ${name}: where the agent runs, the environment variable ${variable}${name} is not set`
      : `secret ${name}: where the agent runs there is no file ${name} in the directory of secrets, and the environment variable ${variable}${name} is not set` };
  }

  /** A file without one line break at its end; undefined if there is none. Symbolic links are followed. */
  #read(dir: string, name: string): { value: string } | { missing: string } | undefined {
    try {
      const path = join(dir, name);
      const file = statSync(path); // to open a pipe could block, and a huge file is not read
      if (!file.isFile()) return { missing: `secret ${name}: its file cannot be used: it is not a regular file` };
      if (file.size > maxSecretBytes + 2) return tooLarge(name);
      let data = readFileSync(path);
      if (data.at(-1) === 0x0a) data = data.subarray(0, data.at(-2) === 0x0d ? -2 : -1);
      return checked(name, data);
    } catch (e) {
      const { code } = e as { code?: string };
      if (code === "ENOENT") return undefined;
      if (code === "EMFILE" || code === "ENFILE") throw new NoEffect(`secret ${name}: ${code}`, { code: "secretMissing" });
      return { missing: `secret ${name}: its file cannot be used: ${code}` };
    }
  }
}

function checked(name: string, data: Buffer): { value: string } | { missing: string } {
  if (data.length === 0) return { missing: `secret ${name} is empty where the agent runs` };
  if (data.length > maxSecretBytes) return tooLarge(name);
  try {
    return { value: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data) };
  } catch {
    return { missing: `secret ${name} is not UTF-8 where the agent runs` };
  }
}

const tooLarge = (name: string) => ({ missing: `secret ${name} has more than ${maxSecretBytes} bytes where the agent runs` });

const rejected = (message: string): Rejected => new Rejected(message, { code: "secretMissing", noEffect: true });

/** value with the references in the strings at the pointers replaced. The values are not read again. */
export function fill(value: unknown, pointers: readonly string[], valueOf: (name: string) => string): unknown {
  for (const pointer of pointers) {
    if (pointer !== "" && !pointer.startsWith("/")) throw rejected(`${JSON.stringify(pointer)} is not a JSON Pointer`);
    const parts = pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    value = fillAt(value, parts, pointer, valueOf);
  }
  return value;
}

function fillAt(value: unknown, parts: readonly string[], pointer: string, valueOf: (name: string) => string): unknown {
  const [part, ...rest] = parts;
  if (part === undefined) {
    if (typeof value === "string") return value.replace(reference, (_, name: string) => valueOf(name));
  } else if (Array.isArray(value)) {
    if (/^(?:0|[1-9]\d*)$/.test(part) && Number(part) < value.length) {
      return value.map((item: unknown, i) => (i === Number(part) ? fillAt(item, rest, pointer, valueOf) : item));
    }
  } else if (typeof value === "object" && value !== null && Object.hasOwn(value, part)) {
    const copy: Record<string, unknown> = Object.fromEntries(Object.entries(value)); // __proto__ stays a field
    Object.defineProperty(copy, part, { value: fillAt(copy[part], rest, pointer, valueOf), enumerable: true, writable: true, configurable: true });
    return copy;
  }
  throw rejected(`the input has no text at ${pointer}`);
}

/** Replaces the values of secrets by [secret NAME]: as they are, and as messages and echoed requests usually have them. */
export class Redactor {
  readonly #marks: ReadonlyMap<string, string>;
  readonly #any: RegExp;

  private constructor(marks: ReadonlyMap<string, string>) {
    this.#marks = marks;
    const forms = [...marks.keys()].sort((a, b) => b.length - a.length);
    this.#any = new RegExp(forms.map((form) => form.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"), "g");
  }

  /** A redactor of secrets by name; undefined if there is nothing to redact. */
  static of(values: ReadonlyMap<string, string>): Redactor | undefined {
    const marks = new Map<string, string>();
    for (const [name, value] of values) {
      if (bytes(value) < minRedacted) continue;
      for (const form of formsOf(value)) {
        if (bytes(form) >= minRedacted && !marks.has(form)) marks.set(form, `[secret ${name}]`);
      }
    }
    return marks.size > 0 ? new Redactor(marks) : undefined;
  }

  /** text without the values. */
  text(text: string): string {
    return text.replace(this.#any, (form) => this.#marks.get(form)!);
  }

  /** A text of JSON without the values. A number that has one becomes a string. */
  json(text: string): string {
    return stringify(this.#value(parse(text)));
  }

  #value(value: unknown): unknown {
    switch (typeof value) {
      case "string":
        return this.text(value);
      case "number": case "bigint": {
        const shown = this.text(String(value));
        return shown === String(value) ? value : shown;
      }
      case "object":
        if (Array.isArray(value)) return value.map((item) => this.#value(item));
        if (value !== null) return Object.fromEntries(Object.entries(value).map(([name, member]) => [this.text(name), this.#value(member)]));
    }
    return value;
  }
}

/** A value as it is, and as JSON, programs, URLs, HTML and base64 have it. Long lines count for themselves. */
function formsOf(value: string): string[] {
  const lines = value.split(/\r?\n/).map((line) => line.trim()).filter((line) => bytes(line) >= minLine).slice(0, maxLines);
  const texts = [value, value.trim(), ...lines];
  const forms = [...texts, ...texts.flatMap((text) => [JSON.stringify(text).slice(1, -1), ascii(JSON.stringify(text)).slice(1, -1), inspect(text).slice(1, -1),
    text.replaceAll("'", "\\'"), text.replaceAll("'", "'\\''"), text.replaceAll("'", `'"'"'`), // also in a shell
    new URLSearchParams([["", text]]).toString().slice(1), ...percentForms(text), ...htmlForms(text)])];
  let newest = forms;
  for (let level = 0; level < (bytes(value) > maxEscaped ? 1 : escapeLevels); level++) { // messages quote messages: JSON in a string of JSON has each backslash twice
    newest = newest.map((form) => JSON.stringify(form).slice(1, -1)).filter((escaped, i) => escaped !== newest[i]);
    forms.push(...newest);
  }
  return [...forms, ...base64Forms(Buffer.from(value))];
}

/** A text of JSON in ASCII. */
const ascii = (text: string): string => text.replace(/[\u0080-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A text as URLs and forms have it. Encoders differ in the characters that they leave, and in the case of the digits. */
function percentForms(text: string): string[] {
  const forms = [/[A-Za-z0-9_.~-]/, /[A-Za-z0-9_.~/-]/, /[A-Za-z0-9_.~!'()*-]/, /[A-Za-z0-9_.~!'()*;,/?:@&=+$#-]/, /[A-Za-z0-9_.~$&+=:@-]/] // RFC 3986, paths, encodeURIComponent, encodeURI, Go's paths
    .map((left) => [...Buffer.from(text)].map((byte) => (left.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)).join(""))
    .flatMap((form) => [form, form.replaceAll("%20", "+")]);
  return [...forms, ...forms.map((form) => form.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()))];
}

/** A text as HTML and XML have it. */
function htmlForms(text: string): string[] {
  const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return ['"', "&quot;", "&#34;", "&#x22;"].flatMap((double) => ["'", "&apos;", "&#39;", "&#x27;"].map((single) => escaped.replaceAll('"', double).replaceAll("'", single)));
}

/** Data in base64, alone and within a longer text: there, it begins at one of three places of a group of four characters, and
 * the characters at its ends depend on its neighbours, too. */
function base64Forms(data: Buffer): string[] {
  const whole = data.toString("base64");
  const within = [0, 1, 2].flatMap((before) => {
    const shifted = Buffer.concat([Buffer.alloc(before), data]);
    return [shifted.toString("base64"), shifted.toString("base64url")].map((text) => text.slice(Math.ceil((8 * before) / 6), Math.floor((8 * shifted.length) / 6)));
  });
  return [...within, whole, whole.replaceAll("=", ""), data.toString("base64url")];
}
