// JSON in which no integer loses digits: what is beyond 2^53 is read as a bigint, and a bigint is written as an integer.
// Numbers with a fraction or an exponent are JavaScript's, with its 15 to 17 digits.

import { randomUUID } from "node:crypto";

const mark = `bigint ${randomUUID()} `; // stands before the digits while they travel as a string

/** Reads JSON. SyntaxError where it is none. */
export function parse(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(quoteBig(text), (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value);
}

/** Puts integers that a number cannot hold into marked strings. */
function quoteBig(text: string): string {
  let out = "";
  let copied = 0;
  for (let i = 0; i < text.length;) {
    const c = text.charCodeAt(i);
    if (c === 0x22) {
      i = endOfString(text, i + 1);
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      number.lastIndex = i;
      const token = number.exec(text)?.[0] ?? text[i]!;
      if (token.length > 15 && integer.test(token) && !Number.isSafeInteger(Number(token))) {
        out += `${text.slice(copied, i)}"${mark}${token}"`;
        copied = i + token.length;
      }
      i += token.length;
    } else {
      i++;
    }
  }
  return out + text.slice(copied);
}

const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const integer = /^-?\d+$/;

function endOfString(text: string, i: number): number {
  for (;;) {
    const quote = text.indexOf('"', i);
    if (quote < 0) return text.length;
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === 0x5c && quote - 1 - slashes >= i) slashes++;
    if (slashes % 2 === 0) return quote + 1;
    i = quote + 1;
  }
}

/** Writes JSON. TypeError for what JSON has not: NaN, infinities, functions, cycles. undefined is null. */
export function stringify(value: unknown): string {
  let big = false;
  const text = JSON.stringify(value ?? null, (_, v) => {
    if (typeof v === "number" && !Number.isFinite(v)) throw new TypeError(`${v} is no JSON`);
    if (typeof v !== "bigint") return v;
    big = true;
    return mark + v;
  });
  if (text === undefined) throw new TypeError(`a ${typeof value} is no JSON`);
  return big ? text.replaceAll(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1") : text;
}

/** How many bytes a text has in UTF-8. */
export function bytes(text: string): number {
  return Buffer.byteLength(text);
}
