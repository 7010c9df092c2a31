// Writes a JSON value as YAML that people can edit: blocks, with short arrays and objects on one line. Numbers keep their
// text.
import { ExactNumber, namesOf, quoted, type Json } from "./json.ts";

/** The longest array or object on one line, with its indentation. */
const longestLine = 88;
/** The outermost levels are always blocks: a definition, its steps. */
const blockLevels = 2;

/** A text that needs no quotation marks, in YAML 1.1 and 1.2. */
const plain = /^[A-Za-z_][\w./-]*(?: [\w./-]+)*$/;
const duration = /^(?:\d+(?:ms|s|m|h|d))+$/;
const words = /^(?:true|false|null|yes|no|on|off|y|n|nan|inf)$/i;

function scalar(value: Json): string | undefined {
  if (typeof value === "string") return (plain.test(value) && !words.test(value)) || duration.test(value) ? value : quoted(value);
  if (value === null || typeof value !== "object" || value instanceof ExactNumber) return String(value);
  return undefined;
}

function flow(value: Json): string {
  const text = scalar(value);
  if (text !== undefined) return text;
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  const fields = value as { [name: string]: Json };
  return `{${namesOf(fields).map((name) => `${scalar(name)}: ${flow(fields[name]!)}`).join(", ")}}`;
}

function block(value: Json, indent: string, level: number): string {
  const text = scalar(value);
  if (text !== undefined) return ` ${text}\n`;
  const line = flow(value);
  if (level >= blockLevels && line.length + indent.length <= longestLine) return ` ${line}\n`;
  if (Array.isArray(value)) {
    if (value.length === 0) return " []\n";
    return `\n${value.map((item) => `${indent}-${block(item, `${indent}  `, Math.max(level + 1, blockLevels))}`).join("")}`;
  }
  const fields = value as { [name: string]: Json };
  const names = namesOf(fields);
  if (names.length === 0) return " {}\n";
  return `\n${names.map((name) => `${indent}${scalar(name)}:${block(fields[name]!, `${indent}  `, level + 1)}`).join("")}`;
}

/** A value as YAML. */
export function toYaml(value: Json): string {
  return block(value, "", 0).trimStart();
}
