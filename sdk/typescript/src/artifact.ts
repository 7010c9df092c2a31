// Values that are stored as artifacts, because they are too large for an input or output. A reference takes their place.

import { createHash } from "node:crypto";

import { PerdureError } from "./errors.ts";
import { bytes, parse, stringify } from "./json.ts";
import { isObject } from "./transport.ts";

/** A value with more bytes of JSON is stored as an artifact. */
const offloadBytes = 256 << 10;
/** Of an input or output: an object stays one as long as it fits. */
const maxInline = 1 << 20;
const mediaType = "application/json";

/** What stands in a value of a job for an artifact. */
export interface ArtifactReference {
  /** sha256: and 64 hexadecimal digits. */
  $artifact: string;
  /** In bytes. */
  size: number;
  /** The media type; application/json for a value that was offloaded. */
  type?: string;
  path?: string;
}

/** Stores the JSON of a value as an artifact, and returns the reference to it. */
export type Store = (text: string) => Promise<ArtifactReference>;

const hashOf = (data: string | Uint8Array): string => `sha256:${createHash("sha256").update(data).digest("hex")}`;

/** The reference to the artifact that is the JSON of a value. */
export function referenceTo(text: string): ArtifactReference {
  return { $artifact: hashOf(text), size: bytes(text), type: mediaType };
}

export function isReference(value: unknown): value is ArtifactReference {
  return isObject(value) && typeof value.$artifact === "string" && typeof value.size === "number";
}

/** An input or output as JSON, of which values of more than 256 KiB are stored as artifacts: as far inside of it as possible.
 * An object stays one, so that expressions can read its members, unless what is left of it is over 1 MiB. */
export async function offload(text: string, store: Store): Promise<string> {
  if (bytes(text) <= offloadBytes) return text;
  const value = await inner(parse(text), store);
  const left = stringify(value);
  return bytes(left) > (isObject(value) ? maxInline : offloadBytes) ? stringify(await store(left)) : left;
}

/** The value, with the members offloaded that are too large. */
async function inner(value: unknown, store: Store): Promise<unknown> {
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    for (const item of value) items.push(await part(item, store));
    return items;
  }
  if (!isObject(value)) return value;
  const members: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) members.push([name, await part(member, store)]);
  return Object.fromEntries(members);
}

async function part(value: unknown, store: Store): Promise<unknown> {
  if (typeof value !== "string" && (typeof value !== "object" || value === null)) return value;
  if (bytes(stringify(value)) <= offloadBytes) return value;
  const rest = await inner(value, store);
  const text = stringify(rest);
  return bytes(text) > offloadBytes ? await store(text) : rest;
}

/** The value of an artifact that was read: what its JSON says, or its bytes if it is of another type. */
export function valueOf(reference: ArtifactReference, data: Uint8Array): unknown {
  if (data.length !== reference.size || hashOf(data) !== reference.$artifact) {
    throw new PerdureError("unavailable", `the server has sent other bytes than those of the artifact ${reference.$artifact}`);
  }
  if (reference.type !== mediaType) return data;
  try {
    return parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch (e) {
    throw new PerdureError("invalid", `the artifact ${reference.$artifact} is of the type ${mediaType}, and cannot be read as JSON: ${String(e)}`, { cause: e });
  }
}
