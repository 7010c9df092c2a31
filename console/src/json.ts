// JSON without loss: integers that a JavaScript number cannot hold become a bigint, other numbers keep their text, and
// objects keep the order of their fields. Values of jobs are shown as they were stored.
import { bidiControls } from "./bidi.ts";

/** A number whose text is not the one that JavaScript would write, such as 1.0 or 1e400. */
export class ExactNumber {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
  toJSON(): string {
    return this.text;
  }
}

export type Json = null | boolean | number | bigint | string | ExactNumber | Json[] | { [name: string]: Json };

/** How deep arrays and objects may be nested. The server's bound is lower. */
export const maxDepth = 1000;

// JavaScript moves names such as "10" to the front of an object: the order of such an object is kept here.
const order = new WeakMap<object, string[]>();

/** The names of an object's fields, in the order of the text. */
export function namesOf(object: object): string[] {
  return order.get(object) ?? Object.keys(object);
}

/** The class of objects in JSON texts. It inherits no names, so that a field may have any; Object.create(null) would be slower. */
const Fields = function () {} as unknown as new () => { [name: string]: Json };
Fields.prototype = Object.create(null);

/** From this length on, a text is worth a look for what JSON.parse would change. */
const largeText = 200_000;

/**
 * What JSON.parse might change: numbers with a point, an exponent or many digits, a negative zero, and fields whose names
 * are numbers. It may also match within a string; then nothing is lost but time.
 */
const inexact = /[:[,]\s*-?(?:0(?=\s*[,\]}])(?<=-0)|\d{16,}|\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))\s*[,\]}]|"\d+"\s*:/;

/** Reads a JSON text. The objects of a large text that JSON.parse reads exactly have the usual prototype. */
export function parseJson(text: string): Json {
  if (text.length >= largeText && !inexact.test(text)) return JSON.parse(text) as Json;
  let at = 0;

  function fail(what: string): never {
    throw new SyntaxError(`${what} at character ${at} of the JSON text`);
  }
  function space(): void {
    for (; at < text.length; at++) {
      const c = text.charCodeAt(at);
      if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return;
    }
  }
  function string(): string {
    const begin = at + 1;
    let end = text.indexOf('"', begin);
    if (end < 0) fail("a string does not end");
    let raw = text.slice(begin, end);
    if (raw.includes("\\")) {
      // The quotation mark may be an escaped one.
      for (end = begin; text.charCodeAt(end) !== 0x22; end++) {
        if (text.charCodeAt(end) === 0x5c) end++;
        if (!(end < text.length)) fail("a string does not end");
      }
      raw = text.slice(begin, end);
    }
    if (controls.test(raw)) fail("a string does not end");
    at = end + 1;
    return raw.includes("\\") ? (JSON.parse(`"${raw}"`) as string) : raw;
  }
  function number(): Json {
    // Short whole numbers are the most frequent ones.
    let end = at;
    let n = 0;
    for (let c; end - at < 15 && (c = text.charCodeAt(end)) >= 0x30 && c <= 0x39; end++) n = 10 * n + c - 0x30;
    const next = text.charCodeAt(end);
    if (end > at && (text.charCodeAt(at) !== 0x30 || end === at + 1) && !(next >= 0x30 && next <= 0x39) && next !== 0x2e && (next | 0x20) !== 0x65) {
      at = end;
      return n;
    }
    return otherNumber();
  }
  function otherNumber(): Json {
    numberPattern.lastIndex = at;
    const found = numberPattern.exec(text);
    if (!found) fail("a value is missing");
    at = numberPattern.lastIndex;
    const n = Number(found[0]);
    if (String(n) === found[0] && (Number.isSafeInteger(n) || found[1] !== undefined || found[2] !== undefined)) return n;
    if (found[1] === undefined && found[2] === undefined && found[0] !== "-0") return BigInt(found[0]);
    return new ExactNumber(found[0]);
  }
  function word<T extends Json>(name: string, value: T): T {
    if (!text.startsWith(name, at)) fail("a value is missing");
    at += name.length;
    return value;
  }
  function value(depth: number): Json {
    if (depth > maxDepth) fail(`more than ${maxDepth} levels`);
    space();
    switch (text[at]) {
      case "{":
        return object(depth);
      case "[":
        return array(depth);
      case '"':
        return string();
      case "t":
        return word("true", true);
      case "f":
        return word("false", false);
      case "n":
        return word("null", null);
    }
    return number();
  }
  function array(depth: number): Json[] {
    const items: Json[] = [];
    at++;
    space();
    if (text[at] === "]") {
      at++;
      return items;
    }
    for (;;) {
      items.push(value(depth + 1));
      space();
      const c = text[at++];
      if (c === "]") return items;
      if (c !== ",") fail("a comma or ] is missing");
    }
  }
  function object(depth: number): { [name: string]: Json } {
    const fields = new Fields();
    const names: string[] = [];
    let moved = false;
    at++;
    space();
    if (text[at] === "}") {
      at++;
      return fields;
    }
    for (;;) {
      space();
      if (text[at] !== '"') fail("a field's name is missing");
      const name = string();
      space();
      if (text[at++] !== ":") fail("a colon is missing");
      if (!(name in fields)) names.push(name);
      moved ||= name.charCodeAt(0) <= 0x39 && indexPattern.test(name);
      fields[name] = value(depth + 1);
      space();
      const c = text[at++];
      if (c === "}") break;
      if (c !== ",") fail("a comma or } is missing");
    }
    if (moved) order.set(fields, names);
    return fields;
  }

  const result = value(0);
  space();
  if (at < text.length) fail("the text continues after its value");
  return result;
}

const numberPattern = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const controls = /[\u0000-\u001f]/;
const indexPattern = /^(?:0|[1-9]\d*)$/;

/** A string as JSON. Controls of the direction of text are escapes, as they would change how it reads. */
export function quoted(text: string): string {
  return JSON.stringify(text).replace(bidiControls, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Writes a value on several lines. Arrays and objects that are short stay on one line. */
export function showJson(value: Json, indent = ""): string {
  if (value === null || typeof value !== "object" || value instanceof ExactNumber) {
    return typeof value === "string" ? quoted(value) : String(value);
  }
  const inner = indent + "  ";
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((item) => showJson(item, inner))
    : namesOf(value).map((name) => `${quoted(name)}: ${showJson(value[name]!, inner)}`);
  const line = open + parts.join(", ") + close;
  if (line.length + indent.length <= maxLine && !line.includes("\n")) return line;
  return `${open}\n${parts.map((part) => inner + part).join(",\n")}\n${indent}${close}`;
}

const maxLine = 72;
