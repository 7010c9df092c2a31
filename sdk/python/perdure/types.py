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
    closedAt: str
    closedBy: str
    job: str
    name: str
    step: str


class _Mark(TypedDict):
    by: str


class Mark(_Mark, total=False):
    reason: str


class StateNames(TypedDict, total=False):
    done: str
    undone: str


class _RunError(TypedDict):
    message: str


class RunError(_RunError, total=False):
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
    reason: Literal["afterSteps", "noAgent", "agentBusy", "limit", "backoff", "notYet", "held", "approval", "running", "expired", "parked", "deadline", "quarantined"]
    text: str


class Reason(_Reason, total=False):
    agent: str
    code: str
    count: int
    holders: List[Holder]
    key: str
    limit: str
    max: int
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
    after: List[str]
    availableAt: str
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
    readyAt: str
    returns: int
    rung: int
    skipped: bool
    startedAt: str
    waits: int
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
    alerts: List[Alert]
    completeBy: str
    definition: Any
    definitionBytes: int
    givenUp: Mark
    input: Any
    inputBytes: int
    key: str
    labels: Dict[str, str]
    restarts: int
    settledAt: str
    states: StateNames
    steps: Dict[str, Step]
    then: Literal["undone", "done", "unsure"]
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
    after: List[str]
    availableAt: str
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
    readyAt: str
    returns: int
    rung: int
    skipped: bool
    startedAt: str
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
    author: str
    detail: str
    run: int
    step: str


class _PageJob(TypedDict):
    items: List[Job]


class PageJob(_PageJob, total=False):
    nextCursor: str


class _PageEntry(TypedDict):
    items: List[Entry]


class PageEntry(_PageEntry, total=False):
    nextCursor: str


class _PageAlert(TypedDict):
    items: List[Alert]


class PageAlert(_PageAlert, total=False):
    nextCursor: str


class _KeyLimit(TypedDict):
    max: int


class KeyLimit(_KeyLimit):
    pass


class _Limit(TypedDict):
    holders: List[Holder]
    name: str
    used: int


class Limit(_Limit, total=False):
    max: int
    perKey: KeyLimit


class _AgentInfo(TypedDict):
    ageing: str
    holders: int
    name: str


class AgentInfo(_AgentInfo, total=False):
    gone: int
    seenAt: str


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
