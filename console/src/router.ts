// The URL holds the whole state of a page: its path below the base, and a query. This file reads and writes such URLs;
// place.ts keeps the one of this tab.

export type Page = "overview" | "jobs" | "job" | "alerts" | "bulk" | "agents" | "hosts" | "limits" | "schedules" | "definitions" | "webhooks" | "nodes" | "submit" | "tokens" | "audit" | "unknown";

/** A page and its state. */
export interface Place {
  page: Page;
  /** The job's id or key, if the page is "job"; the id of a bulk act, or the name of an agent, host, schedule, definition or receiver, if the page is "bulk", "agents", "hosts", "schedules", "definitions" or "webhooks" and shows one. */
  job: string;
  /** The path below the base, without a slash at its beginning. */
  path: string;
  query: URLSearchParams;
}

const lists: Page[] = ["jobs", "alerts", "bulk", "agents", "hosts", "limits", "schedules", "definitions", "webhooks", "nodes", "submit", "tokens", "audit"];

/** Reads the URL of a page. base is the path of the console, with a slash at its end. */
export function placeOf(url: URL, base: string): Place {
  const path = url.pathname.startsWith(base) ? url.pathname.slice(base.length) : "";
  const place: Place = { page: "unknown", job: "", path, query: url.searchParams };
  const [first = "", second, ...more] = path.replace(/\/$/, "").split("/");
  if (first === "" && second === undefined) place.page = "overview";
  else if ((first === "jobs" || first === "agents" || first === "bulk" || first === "hosts" || first === "schedules" || first === "definitions" || first === "webhooks") && second !== undefined && more.length === 0) {
    const job = decoded(second);
    if (job !== undefined) Object.assign(place, { page: first === "jobs" ? "job" : first, job });
  } else if (second === undefined) place.page = lists.find((name) => name === first) ?? "unknown";
  return place;
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined; // not a text that this console has written
  }
}

/** The values of a query. A field that is undefined or empty is left out. */
export type Query = Record<string, string | string[] | undefined>;

/** Writes a query with a question mark; empty if there is nothing in it. */
export function queryText(query: Query): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one) out.append(name, one);
    }
  }
  const text = out.toString();
  return text && `?${text}`;
}

/** Links of the console, relative to its base. */
export const link = {
  overview: () => "./",
  jobs: (query: Query = {}) => `jobs${queryText(query)}`,
  job: (job: string, query: Query = {}) => `jobs/${encodeURIComponent(job)}${queryText(query)}`,
  alerts: (query: Query = {}) => `alerts${queryText(query)}`,
  bulk: (id = "") => (id ? `bulk/${encodeURIComponent(id)}` : "bulk"),
  agents: (name = "") => (name ? `agents/${encodeURIComponent(name)}` : "agents"),
  hosts: (query: Query = {}, name = "") => (name ? `hosts/${encodeURIComponent(name)}` : "hosts") + queryText(query),
  /** keys: the limit whose keys are shown. */
  limits: (keys?: string) => `limits${queryText({ keys })}`,
  schedules: (name = "") => (name ? `schedules/${encodeURIComponent(name)}` : "schedules"),
  definitions: (name = "", query: Query = {}) => (name ? `definitions/${encodeURIComponent(name)}` : "definitions") + queryText(query),
  webhooks: (name = "", query: Query = {}) => (name ? `webhooks/${encodeURIComponent(name)}` : "webhooks") + queryText(query),
  nodes: () => "nodes",
  tokens: () => "tokens",
  audit: (query: Query = {}) => `audit${queryText(query)}`,
  submit: (from?: string) => `submit${queryText({ from })}`,
};
