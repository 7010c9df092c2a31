// What a server receives and answers, as in its OpenAPI document. Times are text as in RFC 3339, in UTC.
//
// Generated; do not edit. After a change of the server: go test ./sdk -run TypeScriptTypes -refresh

import type { JobDefinition } from "./definition.ts";

export type Direction = "do" | "undo";
export type NodeState = "alive" | "dead";
export type Outcome = "done" | "failed" | "rejected" | "returned" | "expired";
export type Phase = "settled" | "waiting" | "ready" | "running" | "parked";
export type ReasonKind = "afterSteps" | "noAgent" | "agentBusy" | "limit" | "backoff" | "notYet" | "held" | "approval" | "running" | "expired" | "parked" | "deadline";
export type RefusalReason = "late" | "stale" | "conflict" | "unknown" | "invalid" | "forbidden";
export type State = "undone" | "done" | "unsure";

export interface AgentInfo {
  /** Go's syntax, and d for days */
  ageing: string;
  holders: number;
  name: string;
  asOf?: string;
  errors?: Record<string, number>;
  fairBy?: string;
  gone?: number;
  health?: HolderHealth[];
  nodes?: number;
  oldestReady?: string;
  /** Go's syntax, and d for days */
  patience?: string;
  ready?: number;
  readyCapped?: boolean;
  refused?: number;
  running?: number;
  seenAt?: string;
  shares?: Share[];
  slots?: number;
  weights?: Record<string, number>;
}

export interface AgentSettings {
  /** The head start of one level of priority: 1s to 10 years, which is the default */
  ageing?: string;
  /** An expression of the job, such as job.labels.customer: runs are dispatched in turn from the shares of jobs with the same value */
  fairBy?: string;
  /** How long a step waits for room on a host before it reserves one: 1s to 30d, default 1m */
  patience?: string;
  /** The weights of shares, by their values: 1 to 1,000, and 1 for those that are not named. At most 1,000 */
  weights?: Record<string, number>;
}

export interface AgentStats {
  agent: string;
  holders: number;
  nodes: number;
  ready: number;
  running: number;
  slots: number;
  errors?: Record<string, number>;
  lastClaim?: string;
  oldestReady?: string;
  readyCapped?: boolean;
  refused?: number;
  sharesCapped?: boolean;
  sharesWaiting?: number;
}

export interface Alert {
  id: number;
  kind: string;
  message: string;
  raisedAt: string;
  attempts?: number;
  closedAt?: string;
  closedBy?: string;
  code?: string;
  job?: string;
  jobKey?: string;
  name?: string;
  step?: string;
  type?: string;
}

export interface AlertStats {
  kind: string;
  n: number;
  code?: string;
  oldest?: string;
  step?: string;
  type?: string;
}

export interface ApproveBody {
  /** For the output of the step: any JSON up to 64 KiB */
  data?: unknown;
  /** For the history, and the output of the step */
  reason?: string;
}

export interface ArtifactState {
  artifact: string;
  next: number;
  size: number;
}

export interface AuditEntry {
  act: string;
  at: string;
  author: string;
  id: number;
  outcome: "done" | "refused";
  address?: string;
  code?: string;
  count?: number;
  credential?: string;
  job?: string;
  onBehalfOf?: string;
  reason?: string;
  target?: string;
  via?: "token" | "session" | "loopback" | "insecure";
}

export interface Backfill {
  from: string;
  parallel: number;
  to: string;
  again?: number;
  first?: string[];
  next?: string;
  ready?: number;
  times?: number;
}

export interface BackfillOptions {
  /** The first time */
  from: string;
  /** All times are earlier; not later than now */
  to: string;
  /** All times get a new job, also those that have one */
  again?: boolean;
  /** Store nothing */
  dryRun?: boolean;
  /** How many of its jobs may be unsettled at once; default: 4 */
  parallel?: number;
}

export interface BatchAnswer {
  /** One for each job, in the same order */
  results: BatchResult[];
}

export interface BatchBody {
  /** Definitions; or, if definition is given, the values of each job */
  jobs: (JobDefinition | JobValues)[];
  /** The definition that all jobs have in common, or the name of a stored one, such as order@7; each item of jobs then has only its own values */
  definition?: JobDefinition | string;
}

export interface BatchResult {
  /** false: the key was submitted before, with the same definition */
  created?: boolean;
  /** Why it was refused */
  error?: ItemProblem;
  /** The job; missing if it was refused */
  id?: string;
  key?: string;
}

export interface BeatResult {
  job: string;
  /** Until lockedUntil */
  remainingMs: number;
  run: number;
  step: string;
  /** The run is no longer wanted, or no longer the holder's */
  stop: boolean;
  lockedUntil?: string;
  reason?: string;
}

export interface BeatsAnswer {
  /** One for each heartbeat, in the same order */
  runs: BeatResult[];
  /** Of a complete heartbeat: the time of the answer, for the next one */
  asOf?: string;
}

export interface BeatsBody {
  holder: string;
  runs: Heartbeat[];
  /** The asOf of the latest answer to a complete heartbeat of this process. Missing: no run expires */
  asOf?: string;
  /** runs has every run of the holder that was not reported, or whose report was not answered. The node expires any other run of the holder that was dispatched before asOf, except those of openClaims */
  complete?: boolean;
  /** The requestIds of the holder's claims that were sent, and that it repeats until they are answered */
  openClaims?: string[];
}

export interface Bulk {
  act: string;
  author: string;
  done: number;
  expected: Count;
  id: string;
  matched: number;
  reason: string;
  refused: number;
  startedAt: string;
  state: "running" | "done" | "stopped";
  unchanged: number;
  updatedAt: string;
  as?: State;
  endedAt?: string;
  expectedEnd?: string;
  filter?: BulkFilter;
  input?: unknown;
  jobs?: number;
  key?: string;
  newKey?: boolean;
  output?: unknown;
  perSecond?: number;
  rate?: number;
  step?: string;
  stoppedBy?: string;
}

export interface BulkBody {
  /** What is done to each job */
  act: "undo" | "redo" | "resume" | "giveUp" | "settle" | "skip" | "edit" | "stop";
  /** For the history of each job */
  reason: string;
  /** settle: the state that the step has */
  as?: "done" | "undone";
  /** Selects the jobs. At least one field; either filter or ids is given */
  filter?: BulkFilterBody;
  /** The jobs, each as an id, a key or the start of an id */
  ids?: string[];
  /** edit, resume of one step: replaces the step's input */
  input?: unknown;
  /** Makes a repeated call safe: the same key is the same bulk act */
  key?: string;
  /** edit, resume of one step: no earlier run had an effect */
  newKey?: boolean;
  /** settle as done: stored as the output of the step */
  output?: unknown;
  /** At most so many jobs are met within any second */
  perSecond?: number;
  /** The step of each job: for settle, skip and edit, and for the resume of one step */
  step?: string;
}

export interface BulkFilter {
  agent?: string;
  alert?: string;
  current?: State;
  desired?: State;
  error?: string;
  key?: string;
  label?: Record<string, string>;
  parent?: string;
  phase?: Phase[];
  q?: string;
  reason?: "quarantined" | "parked" | "approval" | "deadline" | "expired" | "backoff" | "noAgent" | "noHost" | "held" | "limit" | "agentBusy" | "running" | "notYet" | "signal" | "children" | "afterSteps";
  since?: string;
  step?: string;
  type?: string;
  until?: string;
}

export interface BulkFilterBody {
  agent?: string;
  alert?: string;
  current?: State;
  desired?: "undone" | "done";
  error?: string;
  key?: string;
  /** All of these */
  label?: Record<string, string>;
  /** One phase, or a list: any of them */
  phase?: "waiting" | "running" | "parked" | "settled" | ("waiting" | "running" | "parked" | "settled")[];
  q?: string;
  reason?: string;
  /** Submitted at this time or later; or this long ago at most */
  since?: string;
  step?: string;
  type?: string;
  /** Submitted before this time; or longer ago */
  until?: string;
}

export interface BulkPreview {
  count: Count;
  refused: Record<string, number>;
  samples: Job[];
  unchanged: number;
}

export interface BulkRefusal {
  code: string;
  job: string;
  message: string;
  key?: string;
}

export interface CatchUpBody {
  /** Of these, only so many: the latest; default: 1 */
  max?: number;
  /** Only times that passed so long ago at most; default: 1h */
  within?: string;
}

export interface ChildCounts {
  active: number;
  done: number;
  failed: number;
  parked: number;
  submitted: number;
  total: number;
  undone: number;
  unsure: number;
  firstFailed?: string;
  firstParked?: string;
  madeFrom?: string;
}

export interface ClaimAnswer {
  runs: RawRun[];
}

export interface ClaimBody {
  /** The name of the process that will hold the runs. Each process needs a name of its own. Names that start with @ are reserved for nodes */
  holder: string;
  /** What is free of the host: the runs fit into it together */
  free?: Record<string, unknown>;
  /** The promised interval: a run is locked for so long after each heartbeat. Missing: until completeBy */
  heartbeat?: string;
  /** The host that will carry out the runs; the holder is that of its registration. Without it, steps that require a host are not granted */
  host?: string;
  /** How many runs at most */
  max?: number;
  /** Repeated, it returns the same runs while they are valid and unreported */
  requestId?: string;
  /** The caller resolves the references to secrets at the JSON Pointers in secrets of a run. A step with secrets that is claimed without this fails, code secretUnsupported */
  secrets?: boolean;
  /** How long to wait for work, at most 60s */
  wait?: string;
}

export interface Count {
  n: number;
  capped?: boolean;
}

export interface DefinitionVersion {
  author: string;
  createdAt: string;
  hash: string;
  version: number;
}

export interface Delivery {
  attempts: number;
  id: string;
  state: "pending" | "delivered" | "dead";
  time: string;
  type: string;
  endedAt?: string;
  error?: string;
  job?: string;
  nextAttempt?: string;
}

export interface DrainBody {
  /** How long the runs of the host may go on: 0s to 30d */
  deadline?: string;
  reason?: string;
}

export interface EditOptions {
  /** Replaces the step's input; the key stays the same */
  input?: unknown;
  /** true: no earlier run had an effect, so the step starts again under a new key */
  newKey?: boolean;
  /** For the history */
  reason?: string;
}

export interface EffectCounts {
  dispatch?: number;
  park?: number;
  settle?: number;
  waitFor?: number;
  withoutUndo?: number;
}

export interface Effects {
  dispatch: string[];
  park: string[];
  settle: string[];
  waitFor: StepWait[];
  withoutUndo: string[];
  leftOut?: EffectCounts;
}

export interface Entry {
  at: string;
  event: string;
  author?: string;
  detail?: string;
  run?: number;
  step?: string;
}

export interface ExistingJob {
  job: string;
  same: boolean;
}

export interface FieldError {
  message: string;
  pointer: string;
  column?: number;
  hint?: string;
  line?: number;
}

export interface Firing {
  at: string;
  state: "waiting" | "running" | "parked" | "done" | "undone" | "unsure" | "skipped";
  time: string;
  again?: number;
  job?: string;
  reason?: "overlap" | "catchUp" | "refused" | "replaced" | "trigger" | "backfill";
  times?: number;
  to?: string;
}

export interface Graph {
  edges: GraphEdge[];
  hash: string;
  height: number;
  nodeHeight: number;
  nodeWidth: number;
  nodes: GraphNode[];
  width: number;
  edgesLeftOut?: number;
}

export interface GraphEdge {
  from: number;
  points: number[];
  to: number;
}

export interface GraphNode {
  agent: string;
  name: string;
  x: number;
  y: number;
  action?: string;
  undo?: boolean;
}

export interface GraphPlace {
  hash: string;
}

export interface Heartbeat {
  job: string;
  run: number;
  step: string;
  progress?: unknown;
}

export interface HoldBody {
  /** Names one process, and is never used by two at once */
  holder: string;
  /** For how long the holder leads from now on: 2s to 5m */
  ttl: string;
}

export interface Holder {
  job: string;
  amount?: number;
  key?: string;
  run?: number;
  step?: string;
}

export interface HolderHealth {
  done: number;
  holder: string;
  /** Go's syntax, and d for days */
  meanDuration: string;
  runs: number;
  weight: number;
}

export interface Host {
  /** What the host has */
  capacity: Record<string, unknown>;
  holder: string;
  /** Made once for each state directory of the host, and the same after a restart */
  incarnation: string;
  name: string;
  registeredAt: string;
  /** The number of its runs, at most 1,000 */
  runs: number;
  seenAt: string;
  state: "ready" | "draining" | "drained" | "silent";
  /** What its runs take */
  used: Record<string, unknown>;
  /** The boot id of the machine */
  boot?: string;
  drain?: HostDrain;
  /** The grid to which the host belongs */
  grid?: string;
  /** The host registers again at least this often, else it is silent: 1s to 1h, default 1m */
  heartbeat?: string;
  /** Its runs. A list of hosts does not have them */
  inFlight?: HostRun[];
  /** Labels that steps may require or prefer */
  labels?: Record<string, string>;
  /** It can take nothing at present: all of its capacities are 0, as when its state directory is full */
  noSpace?: boolean;
  /** The step for which it is kept: it gets only runs that do not delay this step */
  reservation?: HostReservation;
  /** The version of the host's program */
  version?: string;
}

export interface HostDrain {
  /** When its runs are to be stopped */
  by: string;
  author?: string;
  reason?: string;
}

export interface HostRegistered {
  /** The holder with which the host claims runs, reports and sends heartbeats */
  holder: string;
  state: "ready" | "draining" | "drained" | "silent";
  /** Of a host that is drained: when its runs are to be stopped */
  drainBy?: string;
  /** Of a host that is drained: milliseconds from this registration until drainBy, 0 if that is past. Hosts use this, because clocks may differ */
  drainInMs?: number;
}

export interface HostRequest {
  /** What the host has */
  capacity: Record<string, unknown>;
  /** Made once for each state directory of the host, and the same after a restart */
  incarnation: string;
  /** The boot id of the machine */
  boot?: string;
  /** The grid to which the host belongs */
  grid?: string;
  /** The host registers again at least this often, else it is silent: 1s to 1h, default 1m */
  heartbeat?: string;
  /** Labels that steps may require or prefer */
  labels?: Record<string, string>;
  /** This process has registered the host before, within its heartbeat. If it was removed since, it is not registered again: the answer is notFound */
  renews?: boolean;
  /** The version of the host's program */
  version?: string;
}

export interface HostReservation {
  job: string;
  since: string;
  step: string;
  /** It ends by then */
  until: string;
}

export interface HostRun {
  agent: string;
  job: string;
  /** What a run takes of its host: amounts by name, beside labels and grid */
  requires: Record<string, unknown>;
  run: number;
  startedAt: string;
  step: string;
}

export interface Identity {
  name: string;
  role: "viewer" | "submitter" | "agent" | "operator" | "admin";
  via: "token" | "session" | "loopback" | "insecure";
  agents?: string[];
  expires?: string;
  groups?: string[];
  hosts?: string[];
  types?: string[];
}

export interface ItemProblem {
  /** The same codes as those of a problem */
  code: string;
  /** What is wrong with this job */
  detail: string;
  /** Each fault with its pointer into the job's one definition */
  errors: FieldError[];
  /** How to mend it */
  hint?: string;
}

export interface Job {
  current: State;
  desired: State;
  id: string;
  phase: Phase;
  priority: number;
  submittedAt: string;
  type: string;
  unsettled: number;
  updatedAt: string;
  alerts?: Alert[];
  completeBy?: string;
  definition?: unknown;
  definitionBytes?: number;
  givenUp?: Mark;
  input?: unknown;
  inputBytes?: number;
  key?: string;
  labels?: Record<string, string>;
  madeFrom?: string;
  output?: unknown;
  outputBytes?: number;
  outputError?: string;
  parent?: string;
  restarts?: number;
  settledAt?: string;
  startAt?: string;
  startBy?: string;
  states?: StateNames;
  steps?: Record<string, Step>;
  summary?: JobSummary;
  then?: State;
  traceId?: string;
  traceUrl?: string;
  unchanged?: boolean;
}

export interface JobStats {
  parked: Tally;
  running: Tally;
  settled: Tally;
  waiting: Tally;
}

export interface JobSummary {
  parked: number;
  running: number;
  settled: number;
  steps: number;
  step?: string;
  why?: Reason;
}

export interface JobValues {
  input?: unknown;
  key?: string;
  labels?: Record<string, string>;
  priority?: unknown;
  startAt?: string;
}

export interface KeyLimit {
  burst?: number;
  max?: number;
  rate?: string;
}

export interface Limit {
  holders: Holder[];
  name: string;
  used: number;
  burst?: number;
  keys?: Record<string, KeyLimit>;
  max?: number;
  order?: string;
  perKey?: KeyLimit;
  rate?: string;
  roomAt?: string;
}

export interface LimitKey {
  key: string;
  ready: number;
  used: number;
  burst?: number;
  holders?: Holder[];
  max?: number;
  neverFit?: number;
  rate?: string;
  readyCapped?: boolean;
  roomAt?: string;
}

export interface LimitSettings {
  /** How many permits the rate lets through at once after a pause. Missing: what comes in a tenth of a second, and at least 1 */
  burst?: number;
  /** The bounds of single keys, at most 1,000: what is given here replaces that of perKey */
  keys?: Record<string, KeyLimit>;
  /** How many permits may be held at once; 0: none. Missing: no bound on all of them */
  max?: number;
  /** submitted: the jobs of a key get its permit in the order in which they were submitted. While one is ready, or waits to be tried again, those behind it wait. It needs a perKey.max of 1. Missing: in the order in which their steps become ready, by priority */
  order?: "submitted";
  /** The bounds of each key: max, rate, or both. Missing: none */
  perKey?: KeyLimit;
  /** How many permits may be taken in a time, whether they are given back or not: N/s, N/m, N/h or N/d, N from 1 to 100000. Missing: no bound */
  rate?: string;
}

export interface LimitStats {
  limit: string;
  used: number;
  max?: number;
}

export interface ListAgent {
  items: AgentInfo[];
}

export interface ListLimit {
  items: Limit[];
}

export interface ListLimitKey {
  items: LimitKey[];
}

export interface ListNode {
  items: Node[];
}

export interface ListRoleState {
  items: RoleState[];
}

export interface ListTime {
  items: string[];
}

export interface ListWebhook {
  items: Webhook[];
}

export interface LogChunkBody {
  /** Id of the job */
  job: string;
  /** Offset of the first byte of data, counted from the start of the stream */
  offset: number;
  /** Number of the run */
  run: number;
  /** Name of the step */
  step: string;
  /** stdout or stderr */
  stream: string;
  /** At most 64 KiB, in base64 */
  data?: string;
  /** Nothing follows in this stream */
  last?: boolean;
  /** The bytes before offset that were not yet sent will not be sent: readers see how many are missing */
  skips?: boolean;
}

export interface LogResult {
  accepted: boolean;
  /** Offset of the next byte that the log needs */
  next: number;
  message?: string;
  /** full: the node has reached its bound on bytes a second, and has room after retryAfterMs. gap: bytes before the chunk are missing; send from next on, or with skips. late: the run is over and the holder had no log of it, or the stream was ended by last. forbidden, unknown, invalid: as for reports */
  reason?: string;
  /** With full: when there is room */
  retryAfterMs?: number;
}

export interface LoginBody {
  token: string;
}

export interface LogsAnswer {
  results: LogResult[];
}

export interface LogsBody {
  /** At most 1,000, with 4 MiB of data together */
  chunks: LogChunkBody[];
  /** The holder of the runs */
  holder: string;
}

export interface LongestPath {
  steps: number;
  /** Go's syntax, and d for days */
  time: string;
}

export interface Mark {
  by: string;
  reason?: string;
}

export interface NewToken {
  createdAt: string;
  createdBy: string;
  id: string;
  name: string;
  role: "viewer" | "submitter" | "agent" | "operator" | "admin";
  token: string;
  agents?: string[];
  expiresAt?: string;
  groups?: string[];
  hosts?: string[];
  lastUsedAt?: string;
  previousUntil?: string;
  rotatedAt?: string;
  types?: string[];
}

export interface NewWebhookBody {
  /** 1 to 64 letters, digits, -, _ or ., the first a letter or digit */
  name: string;
  /** The form of the body; default: cloudEvents */
  format?: "cloudEvents" | "slack";
  /** The changes that are reported; default: parked, done, undone */
  on?: ("received" | "running" | "parked" | "done" | "undoing" | "undone" | "givenUp" | "alertRaised" | "alertClosed" | "bulkFinished")[];
  /** Notifications are read by GET /v1/events */
  stream?: boolean;
  /** Types of jobs; default: all */
  types?: string[];
  /** Where notifications are posted: http or https. Either url or stream is given */
  url?: string;
}

export interface NextBody {
  agent: string;
  /** As of a claim */
  requestId: string;
  /** As of a claim */
  free?: Record<string, unknown>;
  /** As of a claim */
  heartbeat?: string;
  /** As of a claim */
  host?: string;
  /** How many runs at most */
  max?: number;
  /** As of a claim */
  secrets?: boolean;
}

export interface Node {
  agents: string[];
  host: string;
  id: string;
  leads: Role[];
  pid: number;
  seenAt: string;
  since: string;
  slots: Record<string, number>;
  standsBy: Role[];
  state: NodeState;
  version: string;
  listen?: string;
}

export interface NodeStats {
  alive: number;
  dead: number;
}

export interface PageAlert {
  items: Alert[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageAuditEntry {
  items: AuditEntry[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageBulk {
  items: Bulk[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageBulkRefusal {
  items: BulkRefusal[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageDefinition {
  items: StoredDefinition[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageDelivery {
  items: Delivery[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageEntry {
  items: Entry[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageFiring {
  items: Firing[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageHost {
  items: Host[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageJob {
  items: Job[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageRunRecord {
  items: RunRecord[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageSchedule {
  items: Schedule[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageSession {
  items: Session[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PageToken {
  items: Token[];
  count?: Count;
  nextCursor?: string;
  scannedBackTo?: string;
}

export interface PauseBody {
  /** Why, for other operators and the audit log */
  reason?: string;
}

export interface Plan {
  limits: PlanLimit[];
  longestPath: LongestPath;
  steps: number;
  warnings: Warning[];
  limitsLeftOut?: number;
  warningsLeftOut?: number;
}

export interface PlanLimit {
  amount: number;
  name: string;
  steps: number;
  max?: number;
  perKey?: KeyLimit;
  rate?: string;
}

export interface Preview {
  effects: Effects;
  job: Job;
}

export interface PromoteBody {
  /** The version that the name means from now on */
  version: number;
}

export interface RawRun {
  action: string;
  completeBy: string;
  direction: Direction;
  input: unknown;
  job: string;
  key: string;
  lockedUntil: string;
  priority: number;
  remainingMs: number;
  run: number;
  step: string;
  doKey?: string;
  labels?: Record<string, string>;
  output?: unknown;
  /** What a run takes of its host: amounts by name, beside labels and grid */
  requires?: Record<string, unknown>;
  secrets?: string[];
  /** Go's syntax, and d for days */
  stopWithin?: string;
  traceparent?: string;
  waitedMs?: number;
}

export interface Reason {
  reason: "quarantined" | "parked" | "approval" | "deadline" | "expired" | "backoff" | "noAgent" | "noHost" | "held" | "limit" | "agentBusy" | "running" | "notYet" | "signal" | "children" | "afterSteps";
  text: string;
  agent?: string;
  approvals?: Mark[];
  behind?: string;
  children?: ChildCounts;
  code?: string;
  count?: number;
  group?: string;
  holders?: Holder[];
  key?: string;
  limit?: string;
  max?: number;
  message?: string;
  quorum?: number;
  signal?: string;
  since?: string;
  steps?: string[];
  until?: string;
  used?: number;
}

export interface ReasonBody {
  /** For the history */
  reason?: string;
}

export interface ReasonStats {
  reason: "quarantined" | "parked" | "approval" | "deadline" | "expired" | "backoff" | "noAgent" | "noHost" | "held" | "limit" | "agentBusy" | "running" | "notYet" | "signal" | "children" | "afterSteps";
  steps: number;
  capped?: boolean;
  lastClaim?: string;
  max?: number;
  name?: string;
  next?: string;
  oldest?: string;
  perKeyMax?: number;
  perKeyRate?: string;
  rate?: string;
  used?: number;
}

export interface ReleaseBody {
  /** The holder that gives the role up */
  holder: string;
}

export interface Report {
  job: string;
  outcome: Outcome;
  run: number;
  step: string;
  effect?: string;
  error?: RunError;
  output?: unknown;
}

export interface ReportResult {
  accepted: boolean;
  message?: string;
  reason?: RefusalReason;
}

export interface ReportsAnswer {
  /** One for each report, in the same order */
  results: ReportResult[];
  /** The runs granted to the claim */
  runs?: RawRun[];
}

export interface ReportsBody {
  holder: string;
  reports: Report[];
  /** A claim that does not wait and is granted together with the reports: steps that the reports make ready come with the answer. If the answer is lost, a claim with the same requestId returns its runs */
  claim?: NextBody;
}

export interface ResendAnswer {
  /** How many notifications are pending again. At most 10,000 in one call */
  resent: number;
}

export interface ResendBody {
  /** Of changes at this time or later; or this long ago at most */
  since: string;
}

export interface ResumeScheduleBody {
  /** Catch up the times that have passed meanwhile, as after an outage. Without it they are left out */
  catchUp?: boolean;
}

export interface Role {
  epoch: number;
  role: string;
  until: string;
}

export interface RoleHold {
  epoch: number;
  leads: boolean;
  leader?: string;
  until?: string;
}

export interface RoleState {
  epoch: number;
  kind: "node" | "held";
  name: string;
  leader?: string;
  leaderHost?: string;
  standby?: string;
  standbyHost?: string;
  standbyUntil?: string;
  until?: string;
}

export interface RotateBody {
  /** For how long the secret before it stays valid, at most 30d; missing: it ends at once */
  overlap?: string;
}

export interface RunError {
  message: string;
  code?: string;
  /** Go's syntax, and d for days */
  retryAfter?: string;
}

export interface RunRecord {
  run: number;
  step: string;
  direction?: Direction;
  endedAt?: string;
  error?: string;
  holder?: string;
  outcome?: Outcome;
  readyAt?: string;
  startedAt?: string;
  turn?: number;
}

export interface Schedule {
  createdAt: string;
  fired: number;
  job: ScheduleJob;
  name: string;
  next: string[];
  running: string[];
  skipped: ScheduleSkipped;
  state: "active" | "paused" | "ended";
  updatedAt: string;
  version: number;
  at?: string[];
  backfill?: Backfill;
  catchUp?: ScheduleCatchUp;
  cron?: string | string[];
  /** Go's syntax, and d for days */
  every?: string;
  failures?: number;
  from?: string;
  /** Go's syntax, and d for days */
  jitter?: string;
  last?: ScheduleLast;
  overlap?: "skip" | "queue" | "allow" | "replace";
  pauseAfter?: number;
  paused?: boolean;
  pausedReason?: string;
  timezone?: string;
  until?: string;
  waiting?: string[];
}

export interface ScheduleCatchUp {
  max?: number;
  /** Go's syntax, and d for days */
  within?: string;
}

export interface ScheduleFired {
  created: boolean;
  job: string;
  time: string;
  unscheduled?: boolean;
}

export interface ScheduleJob {
  definition: unknown;
  input?: unknown;
  labels?: Record<string, string>;
  priority?: number;
}

export interface ScheduleJobBody {
  /** The definition, as in a submission: an object, or the text of a job file, without a key; or the name of a stored one: order, or order@7 */
  definition: JobDefinition | string;
  /** In place of the definition's */
  input?: unknown;
  /** In place of the definition's */
  labels?: Record<string, string>;
  /** In place of the definition's */
  priority?: number;
}

export interface ScheduleLast {
  job: string;
  time: string;
}

export interface ScheduleSettings {
  /** The job that is submitted. ${schedule.time}, ${schedule.previous} and ${schedule.name} in its texts are replaced */
  job: ScheduleJobBody;
  /** Single times, in whole seconds */
  at?: string[];
  /** Which times that passed without a job still get one; default: the latest one of the last hour */
  catchUp?: CatchUpBody;
  /** One text of five fields (minute, hour, day of the month, month, day of the week), a word such as @daily, or a list of them. L is the last day, 5L the last Friday, 5#2 the second one. Exactly one of cron, every and at is given */
  cron?: string | string[];
  /** Whole seconds, 1s at least, counted from from; without it, from the beginning of 1970 in UTC */
  every?: string;
  /** No job starts for an earlier time */
  from?: string;
  /** Each job starts late by a part of it, at most 24h */
  jitter?: string;
  /** What happens while an earlier job has not settled; default: skip */
  overlap?: "skip" | "queue" | "allow" | "replace";
  /** After so many jobs in a row that were undone, given up or parked, the schedule is paused; 0: never */
  pauseAfter?: number;
  /** Pauses or resumes the schedule; without it, an existing schedule stays as it is */
  paused?: boolean;
  /** Of cron: a name of the IANA database; default: UTC */
  timezone?: string;
  /** All jobs are for earlier times */
  until?: string;
}

export interface ScheduleSkipped {
  catchUp: number;
  overlap: number;
}

export interface Series {
  done: number[];
  /** Go's syntax, and d for days */
  every: string;
  failed: number[];
  parked: number[];
  submitted: number[];
  undone: number[];
  from?: string;
}

export interface Session {
  createdAt: string;
  expiresAt: string;
  id: string;
  lastUsedAt: string;
  name: string;
  role: "viewer" | "submitter" | "agent" | "operator" | "admin";
  agents?: string[];
  groups?: string[];
  hosts?: string[];
  token?: string;
  types?: string[];
}

export interface SettleOptions {
  /** The state that the step has */
  as: "done" | "undone";
  /** Stored as the output of the step; only with as: done */
  output?: unknown;
  /** For the history */
  reason?: string;
}

export interface Share {
  ahead: number;
  ready: number;
  value: string;
  weight: number;
  readyCapped?: boolean;
}

export interface SignalBody {
  /** The key for which a step waits */
  key: string;
  /** The name for which a step waits */
  name: string;
  /** For the output of the step: any JSON up to 64 KiB, without artifacts */
  data?: unknown;
  /** The id of the event at its source. While it is remembered, a signal with the same name, key and id has no effect. Without it the node gives one */
  id?: string;
  /** For how long the signal is kept for a step, and its id remembered: 1s to 30d, default 24h */
  keep?: string;
  /** one (the default): the step of the oldest job that waits; if none waits, the signal is kept for the next one. all: all steps that wait now */
  to?: "one" | "all";
}

export interface SignalResult {
  id: string;
  matched: string[];
  repeated?: boolean;
}

export interface SignalStats {
  kept: Tally;
  waiters: Tally;
}

export interface StateNames {
  done?: string;
  undone?: string;
}

export interface Stats {
  agents: AgentStats[];
  alerts: AlertStats[];
  jobs: JobStats;
  limits: LimitStats[];
  nodes: NodeStats;
  reasons: ReasonStats[];
  series: Series;
  signals: SignalStats;
  types: TypeStats[];
  agentsLeftOut?: number;
  alertKinds?: Record<string, number>;
  alertsCapped?: boolean;
  alertsLeftOut?: number;
  asOf?: string;
  limitsLeftOut?: number;
  reasonsLeftOut?: number;
  typesCapped?: boolean;
  typesLeftOut?: number;
}

export interface Step {
  action: string;
  agent: string;
  current: State;
  desired: State;
  direction: Direction;
  failures: number;
  key: string;
  phase: Phase;
  run: number;
  turn: number;
  was: State;
  after?: string[];
  availableAt?: string;
  children?: ChildCounts;
  completeBy?: string;
  endedAt?: string;
  givenUp?: boolean;
  input?: unknown;
  inputBytes?: number;
  lastError?: RunError;
  limits?: StepLimit[];
  lockedBy?: string;
  lockedUntil?: string;
  noUndo?: boolean;
  outcome?: Outcome;
  output?: unknown;
  outputBytes?: number;
  progress?: unknown;
  progressAt?: string;
  readyAt?: string;
  /** What a run takes of its host: amounts by name, beside labels and grid */
  requires?: Record<string, unknown>;
  returns?: number;
  rung?: number;
  skipped?: boolean;
  startedAt?: string;
  stopRequestedAt?: string;
  waits?: number;
  why?: Reason;
}

export interface StepDetail {
  action: string;
  agent: string;
  current: State;
  desired: State;
  direction: Direction;
  failures: number;
  job: string;
  key: string;
  name: string;
  phase: Phase;
  run: number;
  turn: number;
  was: State;
  after?: string[];
  availableAt?: string;
  children?: ChildCounts;
  completeBy?: string;
  endedAt?: string;
  givenUp?: boolean;
  input?: unknown;
  inputBytes?: number;
  lastError?: RunError;
  limits?: StepLimit[];
  lockedBy?: string;
  lockedUntil?: string;
  noUndo?: boolean;
  outcome?: Outcome;
  output?: unknown;
  outputBytes?: number;
  progress?: unknown;
  progressAt?: string;
  readyAt?: string;
  /** What a run takes of its host: amounts by name, beside labels and grid */
  requires?: Record<string, unknown>;
  returns?: number;
  rung?: number;
  skipped?: boolean;
  startedAt?: string;
  stopRequestedAt?: string;
  waits?: number;
  why?: Reason;
}

export interface StepLimit {
  name: string;
  amount?: number;
  key?: string;
}

export interface StepWait {
  step: string;
  until?: string;
}

export interface StoredDefinition {
  current: number;
  latest: number;
  name: string;
  updatedAt: string;
  author?: string;
  createdAt?: string;
  definition?: unknown;
  hash?: string;
  version?: number;
  versions?: DefinitionVersion[];
}

export interface Tally {
  n: number;
  capped?: boolean;
  estimated?: boolean;
}

export interface TestAnswer {
  /** The id of the notification */
  id: string;
}

export interface Token {
  createdAt: string;
  createdBy: string;
  id: string;
  name: string;
  role: "viewer" | "submitter" | "agent" | "operator" | "admin";
  agents?: string[];
  expiresAt?: string;
  groups?: string[];
  hosts?: string[];
  lastUsedAt?: string;
  previousUntil?: string;
  rotatedAt?: string;
  types?: string[];
}

export interface TokenBody {
  /** What the token is for; the author of the acts that are performed with it */
  name: string;
  role: "viewer" | "submitter" | "agent" | "operator" | "admin";
  /** Of an agent, and required there: those whose runs it may carry out */
  agents?: string[];
  /** At most 10 years; missing: it does not expire */
  expiresIn?: string;
  /** For approvals */
  groups?: string[];
  /** Of an agent: the hosts that it may register, and whose runs it may carry out; missing: all */
  hosts?: string[];
  /** Of a submitter: the types of jobs that it may submit; missing: all */
  types?: string[];
}

export interface TriggerBody {
  /** The nominal time, in whole seconds; default: now */
  at?: string;
}

export interface TypeStats {
  parked: number;
  running: number;
  type: string;
  undoing: number;
  waiting: number;
  oldestWaiting?: string;
}

export interface Validation {
  graph: Graph;
  plan: Plan;
  existing?: ExistingJob;
}

export interface Warning {
  kind: string;
  text: string;
  step?: string;
}

export interface Webhook {
  createdAt: string;
  dead: number;
  name: string;
  pending: number;
  state: "active" | "failing" | "full" | "paused";
  updatedAt: string;
  format?: "cloudEvents" | "slack";
  latest?: Delivery;
  oldest?: Delivery;
  on?: ("received" | "running" | "parked" | "done" | "undoing" | "undone" | "givenUp" | "alertRaised" | "alertClosed" | "bulkFinished")[];
  pausedReason?: string;
  secret?: string;
  stream?: boolean;
  types?: string[];
  url?: string;
}

export interface WebhookBody {
  /** The form of the body; default: cloudEvents */
  format?: "cloudEvents" | "slack";
  /** The changes that are reported; default: parked, done, undone */
  on?: ("received" | "running" | "parked" | "done" | "undoing" | "undone" | "givenUp" | "alertRaised" | "alertClosed" | "bulkFinished")[];
  /** Notifications are read by GET /v1/events */
  stream?: boolean;
  /** Types of jobs; default: all */
  types?: string[];
  /** Where notifications are posted: http or https. Either url or stream is given */
  url?: string;
}
