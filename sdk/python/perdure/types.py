"""What a server answers.

From the server's OpenAPI document; `go test ./sdk -run Types -refresh` writes it anew.
Times are texts as RFC 3339 has them, in UTC.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict


class _Alert(TypedDict):
    id: int
    kind: str
    message: str
    raisedAt: str


class Alert(_Alert, total=False):
    """A record that an operator should look at something. docs/errors.md lists the kinds.

    id        number of the alert
    kind      parked, approval, undo, restart, waiting, alert, overdue, refused, clock, setback, undelivered, or noSpace
    message   what has happened
    raisedAt  when it was raised
    attempts  failures of the step then
    closedAt  when it was closed
    closedBy  who closed it
    code      error code of the step when the alert was raised
    job       id of the job; missing if it concerns the store
    jobKey    key of the job
    name      of a rung {alert: NAME}
    step      name of the step; missing if it concerns the whole job
    type      type of the job
    """

    attempts: int
    closedAt: str
    closedBy: str
    code: str
    job: str
    jobKey: str
    name: str
    step: str
    type: str


class _Mark(TypedDict):
    by: str


class Mark(_Mark, total=False):
    reason: str


class StateNames(TypedDict, total=False):
    done: str
    undone: str


class _ChildCounts(TypedDict):
    active: int
    done: int
    failed: int
    parked: int
    submitted: int
    total: int
    undone: int
    unsure: int


class ChildCounts(_ChildCounts, total=False):
    firstFailed: str
    firstParked: str
    madeFrom: str


class _RunError(TypedDict):
    message: str


class RunError(_RunError, total=False):
    """The error of a run. docs/errors.md lists the codes.

    message     text
    code        by which `retry.notOn` knows it
    retryAfter  the shortest time to the next run, if the agent gave one
    """

    code: str
    retryAfter: str


class _StepLimit(TypedDict):
    name: str


class StepLimit(_StepLimit, total=False):
    amount: int
    key: str


class _Holder(TypedDict):
    job: str


class Holder(_Holder, total=False):
    amount: int
    key: str
    run: int
    step: str


class _Reason(TypedDict):
    reason: Literal["quarantined", "parked", "approval", "deadline", "expired", "backoff", "noAgent", "noHost", "held", "limit", "agentBusy", "running", "notYet", "signal", "children", "afterSteps"]
    text: str


class Reason(_Reason, total=False):
    agent: str
    approvals: List[Mark]
    behind: str
    children: ChildCounts
    code: str
    count: int
    group: str
    holders: List[Holder]
    key: str
    limit: str
    max: int
    message: str
    quorum: int
    signal: str
    since: str
    steps: List[str]
    until: str
    used: int


class _Step(TypedDict):
    action: str
    agent: str
    current: Literal["undone", "done", "unsure"]
    desired: Literal["undone", "done", "unsure"]
    direction: Literal["do", "undo"]
    failures: int
    key: str
    phase: Literal["settled", "waiting", "ready", "running", "parked"]
    run: int
    turn: int
    was: Literal["undone", "done", "unsure"]


class Step(_Step, total=False):
    """A step of a job.

    action           what the step does at its agent
    agent            the agent that carries it out
    current          what is recorded: undone, done, or unsure (a run was dispatched, and its outcome is not known)
    desired          what is wanted: done or undone
    direction        of the latest run: do or undo
    failures         failed runs since the retries last started over
    key              idempotency key of all runs of this turn
    phase            waiting, ready, running, parked (until an operator acts), or settled
    run              number of the latest run; 0: none was dispatched
    turn             counts changes of direction, from 1
    was              current state before the latest run
    after            the steps that it waits for
    availableAt      it is not dispatched before this time
    children         of a step with children: how far they are
    completeBy       the deadline of the run in flight
    endedAt          end of the latest run
    givenUp          it was unsettled when the job was given up
    input            of the latest run; None if the step has no `with`; missing if it is large (docs/rest.md)
    inputBytes       size of an input that is left out; Client.step returns it
    lastError        code and message of the latest failure
    limits           the limits of which its runs hold permits
    lockedBy         the holder of the run in flight
    lockedUntil      end of that holder's lock
    noUndo           the step is undone, and its definition has no undo, so an effect of its runs remains
    outcome          of the latest run
    output           of the latest do run that was done
    outputBytes      size of an output that is left out; Client.step returns it
    progress         what the latest heartbeat of the run has shown
    progressAt       when its progress last changed during the latest run
    readyAt          when it was last ready
    requires         what each of its runs takes of its host
    returns          runs that were given back without a failure
    rung             how far it is on the escalation ladder, from 0
    skipped          it was skipped
    startedAt        dispatch of the latest run
    stopRequestedAt  when an operator requested that the run in flight stop
    waits            how often the `wait` rung was used
    why              why it is not running, or what it waits for: `why["text"]` is a sentence
    """

    after: List[str]
    availableAt: str
    children: ChildCounts
    completeBy: str
    endedAt: str
    givenUp: bool
    input: Any
    inputBytes: int
    lastError: RunError
    limits: List[StepLimit]
    lockedBy: str
    lockedUntil: str
    noUndo: bool
    outcome: Literal["done", "failed", "rejected", "returned", "expired"]
    output: Any
    outputBytes: int
    progress: Any
    progressAt: str
    readyAt: str
    requires: Dict[str, Any]
    returns: int
    rung: int
    skipped: bool
    startedAt: str
    stopRequestedAt: str
    waits: int
    why: Reason


class _JobSummary(TypedDict):
    parked: int
    running: int
    settled: int
    steps: int


class JobSummary(_JobSummary, total=False):
    step: str
    why: Reason


class _Job(TypedDict):
    current: Literal["undone", "done", "unsure"]
    desired: Literal["undone", "done", "unsure"]
    id: str
    phase: Literal["settled", "waiting", "ready", "running", "parked"]
    priority: int
    submittedAt: str
    type: str
    unsettled: int
    updatedAt: str


class Job(_Job, total=False):
    """A job. Lists have it without steps, definition and alerts.

    current          what is recorded: done, undone, or unsure (also while it runs)
    desired          what is wanted: done or undone
    id               of the job
    phase            waiting, ready, running, parked (until an operator acts), or settled
    priority         higher ones are dispatched first
    submittedAt      when it was stored
    type             of the job
    unsettled        number of steps that are not settled
    updatedAt        latest change
    alerts           open alerts
    completeBy       deadline of the job
    definition       submitted again, it is the same job
    definitionBytes  size of a definition that is left out; Client.definition returns it
    givenUp          the operator that has given the job up, and why
    input            of the job
    inputBytes       size of an input that is left out
    key              idempotency key of the submission
    labels           of the definition or submission
    madeFrom         the stored definition that the submission named, with its version
    output           of a job that is done; None if it could not be computed
    outputBytes      size of an output that is left out
    outputError      why the output could not be computed
    parent           the step whose child the job is: JOB/STEP
    restarts         how often a restart rung was used
    settledAt        when it was settled
    startAt          when the job starts; missing: at once
    startBy          when a run must have been dispatched; missing once one was
    states           the definition's names for done and undone
    steps            the steps by name, in the order of the definition
    summary          in lists that ask for it: how far the steps are, and why an open one is not running
    then             what is wanted after the job is undone, in a restart
    traceId          of the job's trace, if the node exports traces; missing in lists
    traceUrl         where the trace is shown
    unchanged        in the answer to an act: there was nothing to do, and nothing was recorded
    """

    alerts: List[Alert]
    completeBy: str
    definition: Any
    definitionBytes: int
    givenUp: Mark
    input: Any
    inputBytes: int
    key: str
    labels: Dict[str, str]
    madeFrom: str
    output: Any
    outputBytes: int
    outputError: str
    parent: str
    restarts: int
    settledAt: str
    startAt: str
    startBy: str
    states: StateNames
    steps: Dict[str, Step]
    summary: JobSummary
    then: Literal["undone", "done", "unsure"]
    traceId: str
    traceUrl: str
    unchanged: bool


class _StepDetail(TypedDict):
    action: str
    agent: str
    current: Literal["undone", "done", "unsure"]
    desired: Literal["undone", "done", "unsure"]
    direction: Literal["do", "undo"]
    failures: int
    job: str
    key: str
    name: str
    phase: Literal["settled", "waiting", "ready", "running", "parked"]
    run: int
    turn: int
    was: Literal["undone", "done", "unsure"]


class StepDetail(_StepDetail, total=False):
    """A step with its input and output in full.

    action           what the step does at its agent
    agent            the agent that carries it out
    current          what is recorded: undone, done, or unsure (a run was dispatched, and its outcome is not known)
    desired          what is wanted: done or undone
    direction        of the latest run: do or undo
    failures         failed runs since the retries last started over
    job              id of the job
    key              idempotency key of all runs of this turn
    name             of the step
    phase            waiting, ready, running, parked (until an operator acts), or settled
    run              number of the latest run; 0: none was dispatched
    turn             counts changes of direction, from 1
    was              current state before the latest run
    after            the steps that it waits for
    availableAt      it is not dispatched before this time
    children         of a step with children: how far they are
    completeBy       the deadline of the run in flight
    endedAt          end of the latest run
    givenUp          it was unsettled when the job was given up
    input            of the latest run; None if the step has no `with`; missing if it is large (docs/rest.md)
    inputBytes       size of an input that is left out; Client.step returns it
    lastError        code and message of the latest failure
    limits           the limits of which its runs hold permits
    lockedBy         the holder of the run in flight
    lockedUntil      end of that holder's lock
    noUndo           the step is undone, and its definition has no undo, so an effect of its runs remains
    outcome          of the latest run
    output           of the latest do run that was done
    outputBytes      size of an output that is left out; Client.step returns it
    progress         what the latest heartbeat of the run has shown
    progressAt       when its progress last changed during the latest run
    readyAt          when it was last ready
    requires         what each of its runs takes of its host
    returns          runs that were given back without a failure
    rung             how far it is on the escalation ladder, from 0
    skipped          it was skipped
    startedAt        dispatch of the latest run
    stopRequestedAt  when an operator requested that the run in flight stop
    waits            how often the `wait` rung was used
    why              why it is not running, or what it waits for: `why["text"]` is a sentence
    """

    after: List[str]
    availableAt: str
    children: ChildCounts
    completeBy: str
    endedAt: str
    givenUp: bool
    input: Any
    inputBytes: int
    lastError: RunError
    limits: List[StepLimit]
    lockedBy: str
    lockedUntil: str
    noUndo: bool
    outcome: Literal["done", "failed", "rejected", "returned", "expired"]
    output: Any
    outputBytes: int
    progress: Any
    progressAt: str
    readyAt: str
    requires: Dict[str, Any]
    returns: int
    rung: int
    skipped: bool
    startedAt: str
    stopRequestedAt: str
    waits: int
    why: Reason


class _FieldError(TypedDict):
    message: str
    pointer: str


class FieldError(_FieldError, total=False):
    column: int
    hint: str
    line: int


class _ItemProblem(TypedDict):
    code: str
    detail: str
    errors: List[FieldError]


class ItemProblem(_ItemProblem, total=False):
    hint: str


class BatchResult(TypedDict, total=False):
    created: bool
    error: ItemProblem
    id: str
    key: str


class _Entry(TypedDict):
    at: str
    event: str


class Entry(_Entry, total=False):
    """An act, or the end of a run, in the history of a job. A run that succeeded is recorded when its step is dispatched again.

    at      when it was recorded; of a run, its end
    event   done, failed, rejected, expired, …, or the act
    author  of the act; `rest` if the call named none; of a failure: the holder
    detail  code and message, or the reason of the act
    run     number of the run
    step    name of the step
    """

    author: str
    detail: str
    run: int
    step: str


class _Count(TypedDict):
    n: int


class Count(_Count, total=False):
    capped: bool


class _PageJob(TypedDict):
    items: List[Job]


class PageJob(_PageJob, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str


class _PageEntry(TypedDict):
    items: List[Entry]


class PageEntry(_PageEntry, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str


class _PageAlert(TypedDict):
    items: List[Alert]


class PageAlert(_PageAlert, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str


class KeyLimit(TypedDict, total=False):
    burst: int
    max: int
    rate: str


class _Limit(TypedDict):
    holders: List[Holder]
    name: str
    used: int


class Limit(_Limit, total=False):
    burst: int
    keys: Dict[str, KeyLimit]
    max: int
    order: str
    perKey: KeyLimit
    rate: str
    roomAt: str


class _HolderHealth(TypedDict):
    done: int
    holder: str
    meanDuration: str
    runs: int
    weight: float


class HolderHealth(_HolderHealth):
    pass


class _Share(TypedDict):
    ahead: float
    ready: int
    value: str
    weight: int


class Share(_Share, total=False):
    readyCapped: bool


class _AgentInfo(TypedDict):
    ageing: str
    holders: int
    name: str


class AgentInfo(_AgentInfo, total=False):
    asOf: str
    errors: Dict[str, int]
    fairBy: str
    gone: int
    health: List[HolderHealth]
    nodes: int
    oldestReady: str
    patience: str
    ready: int
    readyCapped: bool
    refused: int
    running: int
    seenAt: str
    shares: List[Share]
    slots: int
    weights: Dict[str, int]


class _Role(TypedDict):
    epoch: int
    role: str
    until: str


class Role(_Role):
    pass


class _Node(TypedDict):
    agents: List[str]
    host: str
    id: str
    leads: List[Role]
    pid: int
    seenAt: str
    since: str
    slots: Dict[str, int]
    standsBy: List[Role]
    state: Literal["alive", "dead"]
    version: str


class Node(_Node, total=False):
    listen: str


class _Health(TypedDict):
    status: str


class Health(_Health, total=False):
    version: str


class _SignalResult(TypedDict):
    id: str
    matched: List[str]


class SignalResult(_SignalResult, total=False):
    repeated: bool


_BackfillKeywords = TypedDict("_BackfillKeywords", {"from": str})


class _Backfill(_BackfillKeywords):
    parallel: int
    to: str


class Backfill(_Backfill, total=False):
    again: int
    first: List[str]
    next: str
    ready: int
    times: int


class ScheduleCatchUp(TypedDict, total=False):
    max: int
    within: str


class _ScheduleJob(TypedDict):
    definition: Any


class ScheduleJob(_ScheduleJob, total=False):
    input: Any
    labels: Dict[str, str]
    priority: int


class _ScheduleLast(TypedDict):
    job: str
    time: str


class ScheduleLast(_ScheduleLast):
    pass


class _ScheduleSkipped(TypedDict):
    catchUp: int
    overlap: int


class ScheduleSkipped(_ScheduleSkipped):
    pass


class _Schedule(TypedDict):
    createdAt: str
    fired: int
    job: ScheduleJob
    name: str
    next: List[str]
    running: List[str]
    skipped: ScheduleSkipped
    state: Literal["active", "paused", "ended"]
    updatedAt: str
    version: int


_ScheduleOptionalKeywords = TypedDict("_ScheduleOptionalKeywords", {"from": str}, total=False)


class Schedule(_Schedule, _ScheduleOptionalKeywords, total=False):
    at: List[str]
    backfill: Backfill
    catchUp: ScheduleCatchUp
    cron: Any
    every: str
    failures: int
    jitter: str
    last: ScheduleLast
    overlap: Literal["skip", "queue", "allow", "replace"]
    pauseAfter: int
    paused: bool
    pausedReason: str
    timezone: str
    until: str
    waiting: List[str]


class _PageSchedule(TypedDict):
    items: List[Schedule]


class PageSchedule(_PageSchedule, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str


class _ScheduleFired(TypedDict):
    created: bool
    job: str
    time: str


class ScheduleFired(_ScheduleFired, total=False):
    unscheduled: bool


class _Firing(TypedDict):
    at: str
    state: Literal["waiting", "running", "parked", "done", "undone", "unsure", "skipped"]
    time: str


class Firing(_Firing, total=False):
    again: int
    job: str
    reason: Literal["overlap", "catchUp", "refused", "replaced", "trigger", "backfill"]
    times: int
    to: str


class _PageFiring(TypedDict):
    items: List[Firing]


class PageFiring(_PageFiring, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str


class _DefinitionVersion(TypedDict):
    author: str
    createdAt: str
    hash: str
    version: int


class DefinitionVersion(_DefinitionVersion):
    pass


class _StoredDefinition(TypedDict):
    current: int
    latest: int
    name: str
    updatedAt: str


class StoredDefinition(_StoredDefinition, total=False):
    author: str
    createdAt: str
    definition: Any
    hash: str
    version: int
    versions: List[DefinitionVersion]


class _PageDefinition(TypedDict):
    items: List[StoredDefinition]


class PageDefinition(_PageDefinition, total=False):
    count: Count
    nextCursor: str
    scannedBackTo: str
