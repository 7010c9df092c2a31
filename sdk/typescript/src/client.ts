// Asks a server: submit, wait, undo, list; and carries agents against it.

import { randomUUID } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { hostname } from "node:os";
import process from "node:process";

import type { Agent } from "./agent.ts";
import { type ArtifactReference, isReference, offload, referenceTo, valueOf } from "./artifact.ts";
import type { CertificateFiles } from "./certificates.ts";
import { Backoff, sleep } from "./clock.ts";
import { PerdureError } from "./errors.ts";
import { Host, type Log } from "./host.ts";
import { bytes, parse, stringify } from "./json.ts";
import { Listing, type Page } from "./listing.ts";
import { type Ask, Transport, answerMs, listIn } from "./transport.ts";
import type { JobDefinition } from "./definition.ts";
import type { AgentInfo, AgentSettings, Alert, ApproveBody, Backfill, BackfillOptions, BatchAnswer, BatchResult, EditOptions, Entry, Firing, Job, JobValues, Limit, LimitSettings,
  ListAgent, ListLimit, ListNode, ListTime, Node, PageAlert, PageDefinition, PageEntry, PageFiring, PageJob, PageSchedule, Phase, Reason, ReasonBody, ResumeScheduleBody, Schedule,
  ScheduleFired, ScheduleSettings, SettleOptions, SignalBody, SignalResult, State, StepDetail, StoredDefinition } from "./types.ts";

const maxBatch = 1000; // jobs in a call
const maxBatchBytes = 16 << 20; // of a call's body, and of its definition as often as there are jobs
const slowest = 1 << 10; // bytes a millisecond that the transfer of an artifact may need at least
const maxWaitMs = 60_000; // of one call; a longer wait is several
const outageMs = 60_000; // how long a wait bears a server that does not answer
const identityMs = 5_000; // for asking, at the start of a host, what the token allows
const tokenHint = "pass the token of an agent with the option token or tokenFile, or PERDURE_TOKEN";
const attempts = 3; // of what may be repeated, where the server is away for a moment

/** A definition as an object is sent as JSON, as a text it is YAML. */
export type Definition = JobDefinition | string;

/** What `list` selects jobs by. A field that is left out, or undefined, does not select. */
export interface ListFilter {
  phase?: Exclude<Phase, "ready"> | undefined;
  type?: string | undefined;
  current?: State | undefined;
  desired?: Exclude<State, "unsure"> | undefined;
  key?: string | undefined;
  /** All of them must hold. */
  labels?: Record<string, string> | undefined;
  /** The agent of an open step that waits for no other step; so are step, reason and error. */
  agent?: string | undefined;
  /** The name of such a step. */
  step?: string | undefined;
  /** Why such a step is not running. */
  reason?: Reason["reason"] | undefined;
  /** The code of the latest error of such a step. */
  error?: string | undefined;
  /** The kind of an open alert. */
  alert?: string | undefined;
  /** JOB/STEP: the children of this step. */
  parent?: string | undefined;
  /** The beginning of an id or key, or the value of a label. */
  q?: string | undefined;
  /** Submitted at this time or later: "2026-01-02T15:04:05Z", or "24h" before now. */
  since?: string | undefined;
  /** Submitted before this time. */
  until?: string | undefined;
  /** The newest come first, if this is left out. */
  order?: "oldest" | undefined;
}

/** What `listAlerts` selects alerts by. */
export interface AlertFilter {
  /** Alerts of this job: an id, a key, or "@latest". */
  job?: string | undefined;
  /** Closed alerts too. */
  closed?: boolean | undefined;
}

export interface CallOptions {
  /** Ends the call: its reason is thrown. Whether a call that changes something was carried out is then not known. */
  signal?: AbortSignal | undefined;
}

export interface ActOptions extends CallOptions {
  /** Who acts, for the history and the log, in place of the client's author. */
  author?: string | undefined;
}

export interface SignalOptions extends ActOptions {
  /** An id or key: only steps of this job receive the signal. */
  job?: string | undefined;
}

export interface PutScheduleOptions extends ActOptions {
  /** Stores nothing, and answers what the schedule would be. */
  dryRun?: boolean | undefined;
}

/** What `listSchedules` selects schedules by. */
export interface ScheduleFilter {
  state?: Schedule["state"] | undefined;
}

export interface SubmitAllOptions extends CallOptions {
  /** The caller's span, for example `run.traceparent`: the trace of each job has a link to it. */
  traceparent?: string | undefined;
}

export interface SubmitOptions extends SubmitAllOptions {
  /** The key of the job, if the definition has none. The key of a run (`run.key`) is accepted too, so that a handler
   * that submits a job makes one job, however often it is repeated. */
  key?: string | undefined;
}

function parentIn(options: SubmitAllOptions): Record<string, string> {
  return options.traceparent ? { Traceparent: headerText(options.traceparent) } : {};
}

export interface ClientOptions {
  /** Who acts, for a job's history. */
  author?: string;
  /** Identifies this program to the server (`perdure tokens create`); by default $PERDURE_TOKEN. */
  token?: string;
  /** A file with the token, in place of `token`, which is read for each call, so that the token can be replaced there; by
   * default $PERDURE_TOKEN_FILE. */
  tokenFile?: string;
  /** A PEM file with the authorities of the server's certificate, in place of the system's; by default $PERDURE_SERVER_CA. */
  serverCA?: string;
  /** PEM files with a certificate and its private key, if the server requires client certificates; by default
   * $PERDURE_CLIENT_CERT and $PERDURE_CLIENT_KEY. */
  clientCert?: string;
  clientKey?: string;
  /** Sent with every request, for example to a proxy in front of the server. */
  headers?: Record<string, string>;
  /** For how long a call is repeated that the server is too busy for (429); 60_000 if nothing is said. */
  patienceMs?: number;
  /** Values of more than 256 KiB in the input of a job (of a definition that is an object) and in the outputs of handlers are
   * stored as artifacts, with a reference in their place. `loadArtifact` reads such a value. */
  offload?: boolean;
}

export interface HostSettings {
  /** The prefix of the holder's name; by default the host's name. A suffix makes it unique. */
  name?: string;
  /** A run is another's so long after this process has died; 10 s if nothing is said. null: after completeWithin. */
  heartbeatMs?: number | null;
  /** A directory with a file for each secret that inputs refer to (${secret.NAME}). A secret without a file is that of the
   * environment variable PERDURE_SECRET_NAME. */
  secretsDir?: string;
  /** Warnings and errors go to the console if nothing is said. null: nothing is. */
  log?: Log | null;
}

export interface ServeOptions extends HostSettings {
  /** How long the drain may take; 30 s if nothing is said. */
  graceMs?: number;
  /** Its end begins the drain; so do SIGTERM and SIGINT, unless `signals` is false. */
  signal?: AbortSignal;
  signals?: boolean;
}

/** Whether a job is settled (done, or wholly undone) or parked (a person is needed). */
export function atRest(job: Job): boolean {
  return job.phase === "settled" || job.phase === "parked";
}

const maxReasonsTold = 3;

/** Why the first steps of a job are not running; those that only wait for others say nothing new. */
function whyOpen(job?: Job): string {
  const told: string[] = [];
  for (const [name, { why }] of Object.entries(job?.steps ?? {})) {
    if (why && why.reason !== "afterSteps") told.push(`step ${name}: ${why.text}`);
  }
  if (told.length > maxReasonsTold) told.splice(maxReasonsTold, told.length, "…");
  return told.length > 0 ? `: ${told.join("; ")}` : "";
}

/** Returns the token of a call; undefined: none is sent. */
function tokenOf(options: ClientOptions): () => Promise<string | undefined> {
  if (options.token && options.tokenFile) throw new TypeError("token and tokenFile: give one of them");
  const named = options.token || options.tokenFile;
  const file = named ? options.tokenFile : process.env.PERDURE_TOKEN_FILE;
  const text = named ? options.token : process.env.PERDURE_TOKEN;
  if (text && !file) {
    const token = tokenText(text, named ? "token" : "PERDURE_TOKEN");
    return async () => token;
  }
  return async () => (file ? tokenText(await readTokenFile(file), `the token file ${file}`) : undefined);
}

/** Returns the PEM files of the options, or else of the environment. */
function filesOf(options: ClientOptions): CertificateFiles {
  const own = options.clientCert || options.clientKey;
  return {
    serverCA: options.serverCA || process.env.PERDURE_SERVER_CA,
    clientCert: own ? options.clientCert : process.env.PERDURE_CLIENT_CERT,
    clientKey: own ? options.clientKey : process.env.PERDURE_CLIENT_KEY,
  };
}

/** A token without the space around it. The error does not repeat the text, which may be a secret. */
function tokenText(text: string, what: string): string {
  const token = text.trim();
  if (!/^[!-~]+$/.test(token)) throw new PerdureError("invalid", `${what} has no token: a token is one word, such as pdr_…`);
  return token;
}

/** A larger token file must be another file. */
const maxToken = 4096;

async function readTokenFile(path: string): Promise<string> {
  const size = await stat(path).then((s) => s.size, () => 0);
  if (size > maxToken) throw new PerdureError("invalid", `the token file ${path} is larger than ${maxToken} bytes`);
  return readFile(path, "utf8").catch((e: unknown) => {
    throw new PerdureError("invalid", `the token cannot be read: ${e instanceof Error ? e.message : String(e)}`);
  });
}

/** One server: `url`, or $PERDURE_SERVER, or http://127.0.0.1:7420. What it refuses is thrown as PerdureError. */
export class Client {
  readonly #transport: Transport;
  readonly #patienceMs: number;
  readonly #offload: boolean;

  constructor(url = "", options: ClientOptions = {}) {
    this.#patienceMs = options.patienceMs ?? outageMs;
    this.#offload = options.offload ?? false;
    this.#transport = new Transport(url || process.env.PERDURE_SERVER || "http://127.0.0.1:7420",
      { ...(options.author ? { "Perdure-Author": headerText(options.author) } : {}), ...options.headers }, tokenOf(options), filesOf(options));
  }

  // Jobs.

  /** Stores a job, before it answers. created is false where the key was submitted before, with the same definition (be it
   * by an attempt of this call whose answer was lost).
   *
   * Give the definition a `key`, or pass one: the same key is the same job, so that it may be submitted again where an answer
   * was lost. A job with a key is, by this call itself, some times. */
  async submit(definition: Definition, options: SubmitOptions = {}): Promise<{ job: Job; created: boolean }> {
    const text = typeof definition === "string";
    if (!text && options.key && definition.key !== undefined && definition.key !== options.key) {
      throw new TypeError(`the definition has the key ${JSON.stringify(definition.key)}, and the call ${JSON.stringify(options.key)}: give one`);
    }
    const safe = Boolean(options.key || (!text && definition.key));
    const { status, value } = await this.#ask("POST", "/v1/jobs", {
      body: text ? definition : await this.#textOf(definition, options.signal), ...(text ? { contentType: "application/yaml" } : {}),
      headers: {
        ...(options.key ? { "Idempotency-Key": headerText(options.key) } : {}),
        ...parentIn(options),
      },
      signal: options.signal,
    }, safe);
    return { job: value as Job, created: status === 201 };
  }

  /** Stores many jobs in few calls, each answered for itself: `{id, key, created}` or `{error}`. With a definition, jobs are
   * what each has of its own. If a call fails, it throws, and those before it are stored. With keys, all may be sent again. */
  submitAll(definitions: JobDefinition[], definition?: undefined, options?: SubmitAllOptions): Promise<BatchResult[]>;
  submitAll(jobs: JobValues[], definition: JobDefinition, options?: SubmitAllOptions): Promise<BatchResult[]>;
  async submitAll(jobs: JobValues[], definition?: JobDefinition, options: SubmitAllOptions = {}): Promise<BatchResult[]> {
    const base = definition === undefined ? "" : stringify(definition);
    const head = base ? `{"definition":${base},"jobs":[` : '{"jobs":[';
    const results: BatchResult[] = [];
    for (let from = 0; from < jobs.length;) {
      const items: string[] = [];
      let size = bytes(head) + 2;
      for (; from + items.length < jobs.length && items.length < maxBatch;) {
        const item = await this.#textOf(jobs[from + items.length]!, options.signal);
        size += bytes(item) + 1;
        if (items.length > 0 && (size > maxBatchBytes || bytes(base) * (items.length + 1) > maxBatchBytes)) break;
        items.push(item);
      }
      const safe = jobs.slice(from, from + items.length).every((job) => job.key);
      const { value } = await this.#ask("POST", "/v1/batches/submit", {
        body: `${head}${items.join()}]}`, headers: parentIn(options), signal: options.signal,
      }, safe);
      results.push(...listIn(value as BatchAnswer, "results", items.length));
      from += items.length;
    }
    return results;
  }

  /** A job as JSON. If the client offloads, large values of its input are stored as artifacts. */
  async #textOf(job: JobDefinition | JobValues, signal: AbortSignal | undefined): Promise<string> {
    if (!this.#offload || job.input === undefined) return stringify(job);
    const input = stringify(job.input);
    const left = await offload(input, (text) => this.#store(text, signal));
    return stringify(left === input ? job : { ...job, input: parse(left) });
  }

  async #store(text: string, signal?: AbortSignal): Promise<ArtifactReference> {
    const reference = referenceTo(text);
    await this.#ask("PUT", `/v1/artifacts/${reference.$artifact}`, {
      body: text, contentType: "application/octet-stream", timeoutMs: answerMs + reference.size / slowest, signal,
    }, true);
    return reference;
  }

  /** The value that was stored as an artifact (`offload`), for the reference that took its place: a Uint8Array if the artifact
   * is of another type than JSON. A value that is no reference is returned as it is. */
  async loadArtifact<T = unknown>(value: T | ArtifactReference, options: CallOptions = {}): Promise<T> {
    if (!isReference(value)) return value;
    const { value: data } = await this.#ask("GET", `/v1/artifacts/${segment(value.$artifact, "an artifact has a hash").replace("%3A", ":")}`, {
      size: value.size, timeoutMs: answerMs + value.size / slowest, signal: options.signal,
    }, true);
    return valueOf(value, data as Uint8Array) as T;
  }

  /** A job with its steps, and why each unsettled one is not running. ref: an id, a key, or "@latest". */
  async get(ref: string, options: CallOptions = {}): Promise<Job> {
    return await this.#get<Job>(pathOf(ref), options);
  }

  /** Returns one step with its input and output in full. (In a job, values above 64 KiB are left out.) */
  async step(ref: string, name: string, options: CallOptions = {}): Promise<StepDetail> {
    return await this.#get<StepDetail>(stepPath(ref, name), options);
  }

  /** Returns the job's definition. Submitted again, it is the same job. */
  async definition(ref: string, options: CallOptions = {}): Promise<JobDefinition> {
    return await this.#get<JobDefinition>(`${pathOf(ref)}/definition`, options);
  }

  /** Waits until the job is at rest: settled or parked. Look at `current`: "done", "undone", or "unsure". Rejects with a
   * DOMException named TimeoutError after timeoutMs, which says what it waits for; the job goes on. A server that is away is waited for, a minute. */
  async wait(ref: string, options: CallOptions & { timeoutMs?: number | undefined } = {}): Promise<Job> {
    const end = performance.now() + (options.timeoutMs ?? Infinity);
    const outage = new Outage();
    let job: Job | undefined;
    for (;;) {
      const asked = performance.now();
      // Of one that is away just a look: what stands between may have cut the wait off, and would again.
      const left = outage.lasts ? 0 : Math.ceil(Math.min(maxWaitMs, Math.max(0, end - asked)));
      try {
        const { value } = await this.#transport.ask("GET", pathOf(ref), {
          ...(left > 0 ? { query: new URLSearchParams({ wait: `${left}ms` }) } : {}),
          signal: options.signal, timeoutMs: left + answerMs,
        });
        job = value as Job;
        if (atRest(job)) return job;
        outage.over();
      } catch (e) {
        await sleep(Math.min(outage.pause(e), Math.max(0, end - performance.now())), options.signal);
      }
      options.signal?.throwIfAborted();
      if (performance.now() >= end) {
        throw new DOMException(`${ref} was not at rest after ${options.timeoutMs} ms${whyOpen(job)}`, "TimeoutError");
      }
      if (performance.now() - asked < 100) await sleep(100, options.signal);
    }
  }

  /** Follows a job until it is at rest. The first value is the whole job; each further one has only the steps that changed,
   * without their inputs and outputs. After an outage the whole job comes again. A server that is away is waited for, a
   * minute. Leave the loop, or abort the signal, to end it. */
  async *follow(ref: string, options: CallOptions = {}): AsyncGenerator<Job, void, undefined> {
    const outage = new Outage();
    for (let rests = false; ;) {
      try {
        for await (const { event, data } of this.#transport.events(`${pathOf(ref)}/events`, options.signal)) {
          if (event === "rest") return;
          if (event !== "job") continue;
          outage.over();
          const job = data as Job;
          rests = atRest(job);
          yield job;
        }
      } catch (e) {
        if (rests) return; // nothing but the end was missing
        await sleep(outage.pause(e), options.signal);
        options.signal?.throwIfAborted();
      }
    }
  }

  /** Jobs, the newest first, without their steps: `for await`, `all()`, or page by page. */
  list(filter: ListFilter = {}, options: CallOptions = {}): Listing<Job> {
    const { labels, ...fields } = filter;
    const query = queryOf(fields);
    for (const [name, value] of Object.entries(labels ?? {})) query.append("label", `${name}=${value}`);
    return this.#listing<PageJob, Job>("/v1/jobs", query, options);
  }

  /** A job's history, oldest first: what went wrong, and who acted on the job. */
  history(ref: string, options: CallOptions = {}): Listing<Entry> {
    return this.#listing<PageEntry, Entry>(`${pathOf(ref)}/history`, new URLSearchParams(), options);
  }

  // Acts. Each is for the job's history; what already holds changes nothing.

  /** Wants the job undone, from now on: each step that was dispatched is undone, the last first. Returns at once. */
  undo(ref: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${pathOf(ref)}/undo`, { reason }, options);
  }

  /** Wants the job done, from now on: what is undone is done again. */
  redo(ref: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${pathOf(ref)}/redo`, { reason }, options);
  }

  /** Tries all steps of a job again that are parked or wait for a retry. */
  resume(ref: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${pathOf(ref)}/resume`, { reason }, options);
  }

  /** Ends a job as it stands. Its history names who did so. */
  giveUp(ref: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${pathOf(ref)}/giveUp`, { reason }, options);
  }

  /** Tries one step again that is parked or waits for a retry, with another input or under a new key if the options say so. */
  resumeStep(ref: string, step: string, edit: EditOptions = {}, options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/resume`, edit, options);
  }

  /** Gives a step another input, or a new key. It changes nothing else: `resumeStep` lets it be tried again. */
  edit(ref: string, step: string, edit: EditOptions, options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/edit`, edit, options);
  }

  /** Says where a step is, if an operator has found out: `{ as: "done", output }` or `{ as: "undone" }`. */
  settle(ref: string, step: string, settle: SettleOptions, options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/settle`, settle, options);
  }

  /** Lets the job go on without a step. */
  skip(ref: string, step: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/skip`, { reason }, options);
  }

  /** Stops the run of a step: it ends failed, with the code stopped, and what follows a failure follows. */
  stop(ref: string, step: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/stop`, { reason }, options);
  }

  /** Approves a step that waits for an approval. `data` is for the output of the step. */
  approve(ref: string, step: string, approval: ApproveBody = {}, options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/approve`, approval, options);
  }

  /** Rejects a step that waits for an approval: it has failed with the code rejected. */
  reject(ref: string, step: string, reason = "", options: ActOptions = {}): Promise<Job> {
    return this.#act(`${stepPath(ref, step)}/reject`, { reason }, options);
  }

  /**
   * Sends a signal to the step that waits for its name and key, or to the next one that will: it is kept for 24 hours, or
   * for as long as `keep` says. `to: "all"`: to all steps that wait now; it is not kept then. With the option `job`, only
   * steps of this job receive it. `id` is that of the event at its source, so that an event which its source sends twice
   * has one effect.
   */
  async sendSignal(signal: SignalBody, options: SignalOptions = {}): Promise<SignalResult> {
    const path = options.job ? `${pathOf(options.job)}/signals` : "/v1/signals";
    const body = { ...signal, id: signal.id || randomUUID() }; // with an id, the call may be repeated
    return await this.#change<SignalResult>("POST", path, body, options, true);
  }

  async #act(path: string, body: ReasonBody | EditOptions | SettleOptions | ApproveBody, options: ActOptions): Promise<Job> {
    const { reason, ...rest } = body;
    return await this.#change<Job>("POST", path, reason ? body : rest, options);
  }

  // Operations.

  /** Open alerts, the newest first, or all with `{ closed: true }`. */
  listAlerts(filter: AlertFilter = {}, options: CallOptions = {}): Listing<Alert> {
    const query = queryOf({ job: filter.job, closed: filter.closed ? "true" : undefined });
    return this.#listing<PageAlert, Alert>("/v1/alerts", query, options);
  }

  /** Closes an alert. Those of parked and of waiting steps are closed by what unparks the step: a conflict. */
  async closeAlert(id: number, reason = "", options: ActOptions = {}): Promise<Alert> {
    return await this.#change<Alert>("POST", `/v1/alerts/${encodeURIComponent(id)}/close`, reason ? { reason } satisfies ReasonBody : {}, options);
  }

  /** The limits that are set, with the permits in use. */
  async listLimits(options: CallOptions = {}): Promise<Limit[]> {
    return listIn((await this.#get<ListLimit>("/v1/limits", options)), "items");
  }

  /** One limit: `job:TYPE`, `agent:NAME`, or a name of your own. */
  async getLimit(name: string, options: CallOptions = {}): Promise<Limit> {
    return await this.#get<Limit>(limitPath(name), options);
  }

  /** Sets a limit: `{ max: 10 }`; 0 stops all. A name of your own takes `perKey` too, with or without max. */
  async putLimit(name: string, settings: LimitSettings, options: ActOptions = {}): Promise<Limit> {
    return await this.#change<Limit>("PUT", limitPath(name), settings, options);
  }

  /** Removes a limit. */
  async deleteLimit(name: string, options: ActOptions = {}): Promise<void> {
    await this.#change("DELETE", limitPath(name), undefined, options);
  }

  /** The agents that have settings, or have claimed runs in the last day. */
  async listAgents(options: CallOptions = {}): Promise<AgentInfo[]> {
    return listIn(await this.#get<ListAgent>("/v1/agents", options), "items");
  }

  /** One agent: its settings, and how many processes claim for it. */
  async getAgent(name: string, options: CallOptions = {}): Promise<AgentInfo> {
    return await this.#get<AgentInfo>(agentPath(name), options);
  }

  /**
   * Sets what a level of priority means for an agent (`{ ageing: "10m" }`), and how long its steps wait for room on a host
   * before they reserve one (`{ patience: "2m" }`); and divides its ready steps into shares, which get runs in turn
   * (`{ fairBy: "job.labels.customer", weights: { gold: 4 } }`). A setting that is missing gets its default.
   */
  async putAgent(name: string, settings: AgentSettings, options: ActOptions = {}): Promise<AgentInfo> {
    return await this.#change<AgentInfo>("PUT", agentPath(name), settings, options);
  }

  /** Removes the settings of an agent, which has the defaults then. */
  async deleteAgent(name: string, options: ActOptions = {}): Promise<void> {
    await this.#change("DELETE", agentPath(name), undefined, options);
  }

  // Schedules: jobs that start at given times.

  /** The schedules, in the order of their names. */
  listSchedules(filter: ScheduleFilter = {}, options: CallOptions = {}): Listing<Schedule> {
    return this.#listing<PageSchedule, Schedule>("/v1/schedules", queryOf({ state: filter.state }), options);
  }

  /** A schedule with its next times and the jobs of it that run. */
  async getSchedule(name: string, options: CallOptions = {}): Promise<Schedule> {
    return await this.#get<Schedule>(schedulePath(name), options);
  }

  /** Creates or replaces a schedule: `{ cron: "30 2 * * *", timezone: "Europe/Warsaw", job: { definition: "report" } }`. */
  async putSchedule(name: string, settings: ScheduleSettings, options: PutScheduleOptions = {}): Promise<Schedule> {
    return await this.#change<Schedule>("PUT", schedulePath(name), settings, options, true, queryOf({ dryRun: options.dryRun ? "true" : undefined }));
  }

  /** Deletes a schedule with its history. Its jobs stay. */
  async deleteSchedule(name: string, options: ActOptions = {}): Promise<void> {
    await this.#change("DELETE", schedulePath(name), undefined, options);
  }

  /** Pauses a schedule: it starts no jobs. Jobs that run go on. */
  async pauseSchedule(name: string, reason = "", options: ActOptions = {}): Promise<Schedule> {
    return await this.#change<Schedule>("POST", `${schedulePath(name)}/pause`, reason ? { reason } satisfies ReasonBody : {}, options, true);
  }

  /** Resumes a schedule. The times that have passed meanwhile are left out; with `catchUp` they are caught up as after an
   * outage. */
  async resumeSchedule(name: string, resume: ResumeScheduleBody = {}, options: ActOptions = {}): Promise<Schedule> {
    return await this.#change<Schedule>("POST", `${schedulePath(name)}/resume`, resume, options, true);
  }

  /** Starts the job of a time at once, also while the schedule is paused. `at` is the nominal time, such as
   * "2026-12-01T01:30:00Z"; "" is now. A time that has a job already gets no second one: `created` is false then. */
  async triggerSchedule(name: string, at = "", options: ActOptions = {}): Promise<ScheduleFired> {
    return await this.#change<ScheduleFired>("POST", `${schedulePath(name)}/trigger`, at ? { at } : {}, options, at !== "");
  }

  /** Starts the jobs of the times from `from` on and before `to` that have none. */
  async backfillSchedule(name: string, backfill: BackfillOptions, options: ActOptions = {}): Promise<Backfill> {
    return await this.#change<Backfill>("POST", `${schedulePath(name)}/backfill`, backfill, options, backfill.dryRun === true);
  }

  /** The next times of a schedule: 5, or `n`, at most 100. */
  async nextTimes(name: string, n?: number, options: CallOptions = {}): Promise<string[]> {
    return listIn(await this.#get<ListTime>(`${schedulePath(name)}/next`, options, queryOf({ n: n === undefined ? undefined : String(n) })), "items");
  }

  /** The history of a schedule, newest first: each time with its job, or why it has none. */
  listFirings(name: string, options: CallOptions = {}): Listing<Firing> {
    return this.#listing<PageFiring, Firing>(`${schedulePath(name)}/firings`, queryOf({}), options);
  }

  // Stored definitions. Each version is immutable, and one is the current one.

  /** The stored definitions, in the order of their names, without the definitions themselves. */
  listDefinitions(options: CallOptions = {}): Listing<StoredDefinition> {
    return this.#listing<PageDefinition, StoredDefinition>("/v1/definitions", queryOf({}), options);
  }

  /** A stored definition: NAME is the current version, NAME@7 the seventh. For that of a job, see `definition`. */
  async getDefinition(name: string, options: CallOptions = {}): Promise<StoredDefinition> {
    return await this.#get<StoredDefinition>(definitionPath(name), options);
  }

  /** Stores a definition as a new version. The same definition is the same version. The first version becomes the current one;
   * others are promoted. */
  async putDefinition(name: string, definition: Definition, options: ActOptions = {}): Promise<StoredDefinition> {
    return await this.#change<StoredDefinition>("PUT", definitionPath(name), definition, options);
  }

  /** Makes a version the current one. */
  async promoteDefinition(name: string, version: number, options: ActOptions = {}): Promise<StoredDefinition> {
    return await this.#change<StoredDefinition>("POST", `${definitionPath(name)}/promote`, { version }, options, true);
  }

  /** Deletes a version that is not the current one (NAME@7), or all of them (NAME). Jobs stay as they are. A conflict if a
   * schedule uses it. */
  async deleteDefinition(name: string, options: ActOptions = {}): Promise<void> {
    await this.#change("DELETE", definitionPath(name), undefined, options);
  }

  /** The processes that share the store, with their agents and roles. */
  async listNodes(options: CallOptions = {}): Promise<Node[]> {
    return listIn(await this.#get<ListNode>("/v1/nodes", options), "items");
  }

  // The server.

  /** The JSON Schema of definitions, for editors. */
  async jobSchema(options: CallOptions = {}): Promise<Record<string, unknown>> {
    return await this.#get<Record<string, unknown>>("/v1/schema/job.json", options);
  }

  /** Whether the process serves. Returns its version, or "" if it does not say one; else throws. It asks once. */
  health(options: CallOptions = {}): Promise<string> {
    return this.#probe("/healthz", options);
  }

  /** Whether the node takes work. Returns its version, or "" if it does not say one; else throws the reason. It asks once. */
  ready(options: CallOptions = {}): Promise<string> {
    return this.#probe("/readyz", options);
  }

  async #probe(path: string, options: CallOptions): Promise<string> {
    const { value } = await this.#transport.ask("GET", path, { signal: options.signal });
    return (value as { version?: string }).version ?? "";
  }

  /** Any other call of docs/rest.md, with its answer as JSON. */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    return (await this.#ask(method, path, body === undefined ? {} : { body: stringify(body) }, method === "GET")).value;
  }

  async #get<T>(path: string, options: CallOptions, query?: URLSearchParams): Promise<T> {
    return (await this.#ask("GET", path, { signal: options.signal, ...(query ? { query } : {}) }, true)).value as T;
  }

  /** A call that changes something. What was set by PUT may be set again; others are repeated only if they are `safe`. A body
   * that is a text is YAML. */
  async #change<T>(method: "POST" | "PUT" | "DELETE", path: string, body: object | string | undefined, options: ActOptions, safe = method === "PUT",
    query?: URLSearchParams): Promise<T> {
    const content = typeof body === "string" ? { body, contentType: "application/yaml" } : body === undefined ? {} : { body: stringify(body) };
    return (await this.#ask(method, path, {
      ...content, signal: options.signal, ...(query ? { query } : {}),
      ...(options.author ? { headers: { "Perdure-Author": headerText(options.author) } } : {}),
    }, safe)).value as T;
  }

  #listing<P extends Page<T>, T>(path: string, query: URLSearchParams, options: CallOptions): Listing<T> {
    return new Listing<T>(async ({ limit, cursor }) => {
      const asked = new URLSearchParams(query);
      if (limit !== undefined) asked.set("limit", String(limit));
      if (cursor) asked.set("cursor", cursor);
      const page = await this.#get<P>(path, options, asked);
      listIn(page, "items");
      return page;
    });
  }

  /** A call, repeated where that is safe and the server is away for a moment. */
  async #ask(method: string, path: string, ask: Ask, safe: boolean): Promise<{ status: number; value: unknown }> {
    const retry = new Backoff(100, 2_000);
    const began = performance.now();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#transport.ask(method, path, ask);
      } catch (e) {
        if (!(e instanceof PerdureError)) throw e;
        const busy = e.code === "backlogFull" || e.code === "tooManyRequests"; // nothing was done
        const wait = retry.draw(busy ? e.retryAfterMs : Math.min(e.retryAfterMs, 5_000));
        if (busy ? performance.now() - began + wait > this.#patienceMs : !safe || attempt >= attempts || !e.away) throw e;
        await sleep(wait, ask.signal);
        ask.signal?.throwIfAborted();
      }
    }
  }

  // Agents.

  /** An agent host to start() and drain(graceMs) yourself, inside of a program that does other things too. */
  host(agents: Agent[], settings: HostSettings = {}): Host {
    return new Host(this.#transport, agents, {
      holder: holder(settings.name),
      ...(settings.heartbeatMs === undefined ? {} : { heartbeatMs: settings.heartbeatMs }),
      ...(settings.secretsDir === undefined ? {} : { secretsDir: settings.secretsDir }),
      ...(settings.log === undefined ? {} : { log: settings.log }),
      ...(this.#offload ? { store: (text: string) => this.#store(text) } : {}),
    });
  }

  /** Rejects if the server says that this client may not carry out runs of the agents. */
  async #checkToken(agents: Agent[]): Promise<void> {
    let me: { name?: string; role?: string; agents?: string[] };
    try {
      me = (await this.#transport.ask("GET", "/v1/me", { timeoutMs: identityMs })).value as typeof me;
    } catch (e) {
      if (!(e instanceof PerdureError)) throw e;
      if (e.code !== "unauthenticated" && e.code !== "forbidden") return; // claims wait until the server is there
      throw new PerdureError(e.code, `no runs are claimed: ${e.message}`, { hint: tokenHint, status: e.status, cause: e });
    }
    for (const { name } of agents) {
      if (me.role === "admin" || (me.role === "agent" && me.agents?.includes(name))) continue;
      throw new PerdureError("forbidden", `no runs are claimed: the token ${me.name}, user role ${me.role}, may not carry out runs of the agent ${name}`,
        { hint: tokenHint, status: 403 });
    }
  }

  /** Claims runs for the agents, executes them here and reports, until SIGTERM, SIGINT, or the signal's end. Then it drains:
   * what has not started is given back, what runs may finish within the grace. A second SIGTERM kills. Rejects with
   * NotDrained if the grace was over before everything was told, and with a PerdureError if the server answers at the start
   * that the token is not valid, or may not carry out runs of these agents; later, calls that fail are repeated. */
  async serve(agents: Agent[], options: ServeOptions = {}): Promise<void> {
    const host = this.host(agents, options);
    await this.#checkToken(agents);
    const stopped = new AbortController();
    const stop = (): void => stopped.abort();
    const names = options.signals === false ? [] : ["SIGTERM", "SIGINT"] as const;
    const restore = (): void => { for (const name of names) process.off(name, stop); };
    for (const name of names) process.on(name, stop);
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.signal?.aborted) stop();
    try {
      host.start();
      if (!stopped.signal.aborted) {
        await new Promise<void>((resolve) => stopped.signal.addEventListener("abort", () => resolve(), { once: true }));
      }
      restore();
      await host.drain(options.graceMs ?? 30_000);
    } finally {
      restore();
      options.signal?.removeEventListener("abort", stop);
    }
  }
}

/** A name of this incarnation of the process, never used again: what a dead one held is not ours. */
export function holder(name?: string): string {
  return `${(name || hostname() || "node").replace(/^@+/, "").slice(0, 150)}-${process.pid}-${randomUUID().slice(0, 13)}`;
}

const pathOf = (ref: string): string => `/v1/jobs/${segment(ref, "a job is named by an id, a key, or @latest")}`;

const stepPath = (ref: string, step: string): string => `${pathOf(ref)}/steps/${segment(step, "a step has a name")}`;
const limitPath = (name: string): string => `/v1/limits/${segment(name, "a limit is named job:TYPE, agent:NAME, or by a name of your own")}`;
const schedulePath = (name: string): string => `/v1/schedules/${segment(name, "a schedule has a name")}`;
const definitionPath = (name: string): string => `/v1/definitions/${segment(name, "a stored definition has a name")}`;
const agentPath = (name: string): string => `/v1/agents/${segment(name, "an agent has a name")}`;

function segment(name: string, otherwise: string): string {
  if (!name) throw new PerdureError("invalid", otherwise);
  return name === "." || name === ".." ? name.replaceAll(".", "%2E") : encodeURIComponent(name).replace(/^%40/, "@");
}

function queryOf(fields: Record<string, string | undefined>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) query.set(name, value);
  return query;
}

/** A header's value is bytes, each given as one character: text is sent as UTF-8. */
function headerText(text: string): string {
  if (text.trim() !== text || /[\0-\x1f\x7f]/.test(text)) {
    throw new PerdureError("invalid", `${JSON.stringify(text)} cannot be sent in a header: it begins or ends with a space, or has a control character`);
  }
  return Buffer.from(text).toString("latin1");
}

/** How long a server has been away, from the first failure on. */
class Outage {
  readonly #retry = new Backoff(100, 2_000);
  #since: number | undefined;

  get lasts(): boolean {
    return this.#since !== undefined;
  }

  over(): void {
    this.#since = undefined;
    this.#retry.reset();
  }

  /** How long to wait before the next attempt. Throws what is no outage, and what lasts too long. */
  pause(e: unknown): number {
    const now = performance.now();
    this.#since ??= now;
    if (!(e instanceof PerdureError && e.away) || now - this.#since > outageMs) throw e;
    if (e.status > 0 && e.status < 500 && e.code !== "tooManyRequests") throw e; // not a Perdure server
    return this.#retry.draw(e.retryAfterMs);
  }
}
