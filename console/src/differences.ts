// How two JSON values differ: the same lines as `perdure definitions diff` prints.
import { ExactNumber, namesOf, showJson, type Json } from "./json.ts";

/** A place in which two values differ. from is undefined if the place is new, to if it is gone. */
export interface Difference {
  /** A JSON Pointer. */
  pointer: string;
  from?: Json;
  to?: Json;
}

function isObject(value: Json | undefined): value is { [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

/** Compares two values. Arrays are compared as a whole, because a step that moves would change all places after it. */
export function differences(from: Json | undefined, to: Json | undefined, pointer = ""): Difference[] {
  if (isObject(from) && isObject(to)) {
    const names = [...new Set([...namesOf(from), ...namesOf(to)])].sort();
    return names.flatMap((name) => differences(from[name], to[name], `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`));
  }
  if (from !== undefined && to !== undefined && showJson(from) === showJson(to)) return [];
  return [{ pointer, ...(from !== undefined && { from }), ...(to !== undefined && { to }) }];
}
