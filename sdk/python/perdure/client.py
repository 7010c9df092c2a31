"""Calls of a server: jobs, acts of operators, limits, alerts, agents, schedules, definitions, nodes; and agents that work for it."""

from __future__ import annotations

import copy
import json
import math
import os
import secrets
import signal
import socket
import threading
import time
import urllib.parse
import uuid
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, cast

from . import artifact, clock
from .agent import Agent
from .connection import ANSWER_TIMEOUT, Certificates, Connection, Stop, to_json
from .errors import BacklogFull, Denied, Error, Invalid, Seconds, Unavailable, refusal, seconds
from .host import Host
from .types import (AgentInfo, Alert, Backfill, BatchResult, Entry, Firing, Health, Job, KeyLimit, Limit, Node, PageAlert, PageDefinition, PageEntry,
                    PageFiring, PageJob, PageSchedule, Schedule, ScheduleFired, SignalResult, StepDetail, StoredDefinition)

Definition = Union[Mapping[str, Any], str, bytes]  # JSON as an object, or YAML as text

IDENTITY_TIMEOUT = 5.0  # for asking, at the start of a host, what the token allows
TOKEN_HINT = "pass the token of an agent with the option token or token_file, or PERDURE_TOKEN"
MAX_BATCH = 1000              # jobs in a call
MAX_BATCH_BYTES = 16 << 20    # of a call's body, and of its definition as often as there are jobs
SLOWEST = 1 << 20             # bytes a second that the transfer of an artifact may need at least
MAX_WAIT = 60.0               # of one call; a longer wait is several
OUTAGE = 60.0                 # how long a wait bears a server that does not answer
ATTEMPTS = 3                  # of what may be repeated, where the server is away for a moment
IDLE_CONNECTIONS = 8
SILENCE = 50.0                # without a byte of a stream; the server sends one at least every 15 s
PAGE = 500                    # items in a page, where all pages are read
KEY_POINTER = "/header/Idempotency-Key"  # where a server finds a fault of the argument `key`


class _Unset:
    """What an argument is that was not given, where None is a value."""

    def __repr__(self) -> str:
        return "not given"


UNSET: Any = _Unset()


class Submitted(NamedTuple):
    job: Job
    created: bool  # False: the key was submitted before, with the same definition; be it by a lost attempt of this call


def at_rest(job: Job) -> bool:
    """Whether a job is settled (done, or wholly undone) or parked (a person is needed)."""
    return job["phase"] in ("settled", "parked")


MAX_TOKEN = 4096  # a larger token file must be another file


class Client:
    """One server: `url`, or $PERDURE_SERVER, or http://127.0.0.1:7420. It may be used by many threads.

    author: who acts, for a job's history. token: identifies this program to the server (`perdure tokens create`);
    or token_file, which is read for each call, so that the token can be replaced there; or $PERDURE_TOKEN_FILE, or
    $PERDURE_TOKEN. server_ca: a PEM file with the authorities of the server's certificate, in place of the system's;
    or $PERDURE_SERVER_CA. client_cert and client_key: PEM files, if the server requires client certificates; or
    $PERDURE_CLIENT_CERT and $PERDURE_CLIENT_KEY. headers: sent with every request, for example to a proxy in front of the
    server. patience: for how many seconds a call is repeated that the server is too busy for (429).
    offload: values of more than 256 KiB in the input of a job (of a definition that is a mapping) and in the outputs of
    handlers are stored as artifacts, with a reference in their place; load_artifact reads such a value.
    What a server refuses is raised as perdure.Error.
    """

    def __init__(self, url: str = "", *, author: str = "", token: str = "", token_file: str = "",
                 server_ca: str = "", client_cert: str = "", client_key: str = "",
                 headers: Optional[Mapping[str, str]] = None, patience: Seconds = OUTAGE, offload: bool = False) -> None:
        self._url = url or os.environ.get("PERDURE_SERVER") or "http://127.0.0.1:7420"
        self._headers = {**({"Perdure-Author": _header("author", author)} if author else {}), **(headers or {})}
        if token and token_file:
            raise ValueError("token and token_file: give one of them")
        what = "token"
        if not token and not token_file:
            token_file, what = os.environ.get("PERDURE_TOKEN_FILE", ""), "PERDURE_TOKEN"
            token = "" if token_file else os.environ.get("PERDURE_TOKEN", "")
        self._token = _token(token, what) if token else ""
        self._token_file = token_file
        if not (client_cert or client_key):
            client_cert, client_key = os.environ.get("PERDURE_CLIENT_CERT", ""), os.environ.get("PERDURE_CLIENT_KEY", "")
        server_ca = server_ca or os.environ.get("PERDURE_SERVER_CA", "")
        named = server_ca or client_cert or client_key
        self._certificates = Certificates(server_ca, client_cert, client_key) if named else None
        self._patience = seconds(patience, "patience")
        self._offload = offload
        self._stop: Optional[Stop] = None
        self._pool = _Pool(self._connect)
        self._connect()  # refuses a wrong URL; it does not connect yet

    def _connect(self) -> Connection:
        return Connection(self._url, self._sent, self._certificates)

    def _sent(self) -> Mapping[str, str]:
        """The headers of a request."""
        token = self._token or (_read_token(self._token_file) if self._token_file else "")
        return {"Authorization": "Bearer " + token, **self._headers} if token else self._headers

    def _stopped_by(self, stop: Stop) -> Client:
        """The same client, whose calls and pauses `stop` ends."""
        view = copy.copy(self)
        view._stop = stop
        return view

    def close(self) -> None:
        """Closes the connections that are kept for the next call."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Jobs.

    def submit(self, definition: Definition, *, key: str = "", traceparent: str = "") -> Submitted:
        """Stores a job before it returns. A mapping is sent as JSON, text as YAML.

        Give the job a key, in the definition or as `key`: the same key is the same job. So a submission whose answer
        was lost can be repeated, and this call repeats it. Without a key, a lost answer raises Unavailable.
        ValueError if the definition, as a mapping, has another key.
        traceparent is the caller's span, for example `run.traceparent`: the job's trace has a link to it.
        """
        if key and isinstance(definition, Mapping) and definition.get("key", key) != key:
            raise ValueError(f"the definition has the key {definition['key']!r}, and the call {key!r}: give one")
        headers = {"Idempotency-Key": _header("key", key)} if key else {}
        headers.update({"Traceparent": _header("traceparent", traceparent)} if traceparent else {})
        if isinstance(definition, Mapping):
            definition = self._offloaded(definition)
            safe, media, body = bool(key or definition.get("key")), "application/json", to_json(definition)
        else:
            safe, media = bool(key), "application/yaml"
            body = definition.encode() if isinstance(definition, str) else bytes(definition)
        try:
            status, job = self._ask("POST", "/v1/jobs", body=body, media=media, headers=headers, safe=safe)
        except Invalid as e:
            if not any(f.get("pointer") == KEY_POINTER for f in e.errors):
                raise
            errors = [{**f, "pointer": "key"} if f.get("pointer") == KEY_POINTER else f for f in e.errors]
            raise Invalid(e.code, e.message.replace(KEY_POINTER, "key"), e.hint, e.status, errors) from None
        return Submitted(job, status == 201)

    def submit_all(self, jobs: Iterable[Mapping[str, Any]],
                   definition: Optional[Mapping[str, Any]] = None, *, traceparent: str = "") -> List[BatchResult]:
        """Stores many jobs in few calls, each answered for itself: `{"id", "key", "created"}` or `{"error"}`.

        With a definition, jobs are `{"key"?, "input"?, "priority"?, "labels"?, "startAt"?}` of it; without one, definitions.
        If a call fails, it raises, and those before it are stored. With keys, all may be sent again.
        """
        base = to_json(definition, "/definition") if definition is not None else b""
        headers = {"Traceparent": _header("traceparent", traceparent)} if traceparent else {}
        results: List[BatchResult] = []
        items = [(bool(j.get("key")), to_json(self._offloaded(j), f"/jobs/{i}")) for i, j in enumerate(jobs)]
        while items:
            size, n = len(base), 0
            while n < min(len(items), MAX_BATCH):
                size += len(items[n][1]) + 1
                if n and (size + 64 > MAX_BATCH_BYTES or len(base) * (n + 1) > MAX_BATCH_BYTES):
                    break
                n += 1
            body = (b'{"definition":%s,' % base if base else b"{") + b'"jobs":[%s]}' % b",".join(i for _, i in items[:n])
            _, answer = self._ask("POST", "/v1/batches/submit", body=body, headers=headers, safe=all(k for k, _ in items[:n]))
            if len(answer["results"]) != n:
                raise Unavailable("unavailable", f"{len(answer['results'])} answers came to {n} questions")
            results += answer["results"]
            items = items[n:]
        return results

    def _offloaded(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """A job, of whose input large values are stored as artifacts."""
        if not self._offload or "input" not in job:
            return job
        try:
            return {**job, "input": artifact.offload(job["input"], self._store)}
        except (TypeError, ValueError, RecursionError):
            return job  # what has no JSON form is refused with its place

    def _store(self, data: bytes) -> Dict[str, Any]:
        ref = artifact.reference(data)
        self._ask("PUT", "/v1/artifacts/" + ref["$artifact"], body=data, media="application/octet-stream", safe=True,
                  timeout=ANSWER_TIMEOUT + len(data) / SLOWEST)
        return ref

    def load_artifact(self, value: Any) -> Any:
        """The value that was stored as an artifact (offload), for the reference that took its place. Bytes if the artifact
        is of another type than JSON. A value that is no reference is returned as it is."""
        if not artifact.is_reference(value):
            return value
        size = int(value["size"])
        data = self._ask("GET", "/v1/artifacts/" + _segment(value["$artifact"]), safe=True, size=size,
                         timeout=ANSWER_TIMEOUT + size / SLOWEST)[1]
        return artifact.checked(value, data)

    def get(self, ref: str) -> Job:
        """A job with its steps, and why each unsettled one is not running. ref: an id, a key, or "@latest"."""
        return cast(Job, self._ask("GET", _job(ref), safe=True)[1])

    def step(self, ref: str, name: str) -> StepDetail:
        """Returns one step with its input and output in full. (In a job, values above 64 KiB are left out.)"""
        return cast("StepDetail", self._ask("GET", _step(ref, name), safe=True)[1])

    def definition(self, ref: str) -> Dict[str, Any]:
        """Returns the job's definition. Submitted again, it is the same job."""
        return cast("Dict[str, Any]", self._ask("GET", _job(ref) + "/definition", safe=True)[1])

    def wait(self, ref: str, timeout: Optional[Seconds] = None) -> Job:
        """Waits until the job is at rest: settled or parked. Look at `current`: "done", "undone", or "unsure".
        timeout: seconds, a timedelta, or a text such as "30s". After it, TimeoutError says what the job waits for, or that
        the server is not available; the job goes on. A server that is away is waited for, a minute."""
        limit = math.inf if timeout is None else seconds(timeout, "timeout")
        end = time.monotonic() + limit
        lost: Optional[float] = None  # since when the server is away
        away: Optional[Unavailable] = None
        retry = clock.Backoff(0.1, 2.0)
        job: Optional[Job] = None
        while True:
            asked = time.monotonic()
            # Of one that is away just a look: what stands between may have cut the wait off, and would again.
            left = min(MAX_WAIT, max(0.0, end - asked)) if lost is None else 0.0
            try:
                job = self._wait_once(ref, left)
                if at_rest(job):
                    return job
                lost, away = None, None
                retry.reset()
            except Unavailable as e:
                now, away = time.monotonic(), e
                lost = now if lost is None else lost
                if _permanent(e) or now - lost > OUTAGE:
                    raise
                self._sleep(min(retry.draw(e.retry_after), max(0.0, end - now)))
            if time.monotonic() >= end:
                if away is not None:
                    raise TimeoutError(f"after {limit:g} s it is not known whether {ref} is at rest: the server is not available: {away}") from away
                raise TimeoutError(f"{ref} was not at rest after {limit:g} s{_why(job)}")
            if time.monotonic() - asked < 0.1:
                self._sleep(0.1)

    def _wait_once(self, ref: str, wait: float) -> Job:
        query = urllib.parse.urlencode({"wait": clock.duration(wait)}) if wait >= 0.001 else ""
        return cast(Job, self._call("GET", _job(ref), query=query, timeout=wait + ANSWER_TIMEOUT, safe=True)[1])

    def follow(self, ref: str) -> Iterator[Job]:
        """Yields the job as it is, and again after each change, until it is at rest.

        The first has all steps; later ones have the steps that have changed, without inputs and outputs. A stream that
        breaks is opened again, and begins with the whole job. A server that is away is waited for, a minute.
        """
        lost: Optional[float] = None
        retry = clock.Backoff(0.1, 2.0)
        resting = False
        while True:
            try:
                for name, data in self._events(_job(ref) + "/events"):
                    if name == "rest":
                        return
                    if name == "problem":
                        raise refusal(json.loads(data))
                    if name == "job":
                        job = cast(Job, json.loads(data))
                        lost, resting = None, at_rest(job)
                        retry.reset()
                        yield job
                failure = Unavailable("unavailable", "the stream of events ended early")
            except Unavailable as e:
                failure = e
            if resting:
                return  # nothing but the end was missing
            now = time.monotonic()
            lost = now if lost is None else lost
            if _permanent(failure) or now - lost > OUTAGE:
                raise failure
            self._sleep(retry.draw(failure.retry_after))

    def _events(self, path: str) -> Iterator[Tuple[str, bytes]]:
        connection, stop = self._connect(), self._stop
        if stop is None:
            yield from connection.events(path, silence=SILENCE)
            return
        with stop.guards(connection):
            yield from connection.events(path, silence=SILENCE, until=stop.event)

    def list(self, *, phase: str = "", type: str = "", current: str = "", desired: str = "", key: str = "",
             labels: Optional[Mapping[str, str]] = None, agent: str = "", step: str = "", reason: str = "", error: str = "",
             alert: str = "", parent: str = "", q: str = "", since: str = "", until: str = "", oldest: bool = False) -> Iterator[Job]:
        """Yields all jobs that fit, the newest first, without their steps. It reads page after page.

        agent, step, reason and error select jobs by an open step that waits for no other step: its agent, its name, why
        it is not running, and the code of its latest error. alert is the kind of an open alert. parent, JOB/STEP, selects
        the children of a step. q is the beginning of an
        id or key, or the value of a label. since and until are times as "2026-01-02T15:04:05Z", or durations before now
        as "24h"."""
        return self._all(lambda cursor: self.list_jobs(
            phase=phase, type=type, current=current, desired=desired, key=key, labels=labels, agent=agent, step=step,
            reason=reason, error=error, alert=alert, parent=parent, q=q, since=since, until=until, oldest=oldest, limit=PAGE,
            cursor=cursor))

    def list_jobs(self, *, phase: str = "", type: str = "", current: str = "", desired: str = "", key: str = "",
                  labels: Optional[Mapping[str, str]] = None, agent: str = "", step: str = "", reason: str = "",
                  error: str = "", alert: str = "", parent: str = "", q: str = "", since: str = "", until: str = "",
                  oldest: bool = False, count: bool = False, summary: bool = False, limit: int = 0, cursor: str = "") -> PageJob:
        """Returns one page: `{"items": [...]}`, and `nextCursor` if there are more. Pass that as `cursor` for the next
        page. A page may have few items or none, and a nextCursor all the same. limit: 50 if not given, at most 500; with
        summary, which adds `summary` to each job, at most 50. count adds `count`, the number of jobs of all pages."""
        query = [("phase", phase), ("type", type), ("current", current), ("desired", desired), ("key", key), ("agent", agent),
                 ("step", step), ("reason", reason), ("error", error), ("alert", alert), ("parent", parent), ("q", q), ("since", since),
                 ("until", until), ("order", "oldest" if oldest else ""), ("count", "true" if count else ""),
                 ("with", "summary" if summary else "")]
        query += [("label", f"{k}={v}") for k, v in (labels or {}).items()]
        return cast(PageJob, self._page("/v1/jobs", query, limit, cursor))

    def history(self, ref: str) -> List[Entry]:
        """Returns all of a job's history, oldest first: failures, and the acts of operators."""
        return [*self._all(lambda cursor: self.list_history(ref, limit=PAGE, cursor=cursor))]

    def list_history(self, ref: str, *, limit: int = 0, cursor: str = "") -> PageEntry:
        """Returns one page of a job's history, as list_jobs does."""
        return cast(PageEntry, self._page(_job(ref) + "/history", [], limit, cursor))

    def _page(self, path: str, query: List[Tuple[str, str]], limit: int, cursor: str) -> Any:
        query = [(k, v) for k, v in [*query, ("limit", str(limit) if limit else ""), ("cursor", cursor)] if v]
        return self._ask("GET", path, query=urllib.parse.urlencode(query), safe=True)[1]

    def _all(self, page: Callable[[str], Any]) -> Iterator[Any]:
        cursor = ""
        while True:
            answer = page(cursor)
            yield from answer["items"]
            cursor = answer.get("nextCursor", "")
            if not cursor:
                return

    # Acts of an operator. Each is recorded in the job's history with its author: that of the call, or of the client.

    def undo(self, ref: str, reason: str = "", *, author: str = "") -> Job:
        """Desires the job undone: each step that may have had an effect is undone, in reverse order. If the job is
        desired undone already, nothing changes. wait() returns when it is undone."""
        return self._act(_job(ref), "undo", reason, author)

    def redo(self, ref: str, reason: str = "", *, author: str = "") -> Job:
        """Desires the job done again: what is undone is done again."""
        return self._act(_job(ref), "redo", reason, author)

    def resume(self, ref: str, reason: str = "", *, author: str = "") -> Job:
        """Tries all steps of the job again that are parked or wait for a retry."""
        return self._act(_job(ref), "resume", reason, author)

    def give_up(self, ref: str, reason: str = "", *, author: str = "") -> Job:
        """Closes the job as it is. Only undo or redo opens it again."""
        return self._act(_job(ref), "giveUp", reason, author)

    def resume_step(self, ref: str, step: str, reason: str = "", *, input: Any = UNSET, new_key: bool = False,
                    author: str = "") -> Job:
        """Tries one step again that is parked or waits for a retry. input: replaces the step's input. new_key: no earlier run had an effect, so the step
        starts over under a new key."""
        return self._act(_step(ref, step), "resume", reason, author, input=input, newKey=new_key or UNSET)

    def edit(self, ref: str, step: str, reason: str = "", *, input: Any = UNSET, new_key: bool = False,
             author: str = "") -> Job:
        """Gives a step another input for its next run. new_key: as in resume_step."""
        return self._act(_step(ref, step), "edit", reason, author, input=input, newKey=new_key or UNSET)

    def settle(self, ref: str, step: str, as_: str, reason: str = "", *, output: Any = UNSET, author: str = "") -> Job:
        """Settles a step as "done" or "undone", as an operator has found it. output: as if its run had reported it;
        only with "done"."""
        return self._act(_step(ref, step), "settle", reason, author, **{"as": as_}, output=output)

    def skip(self, ref: str, step: str, reason: str = "", *, author: str = "") -> Job:
        """Settles a step without doing it. The steps after it go on."""
        return self._act(_step(ref, step), "skip", reason, author)

    def stop(self, ref: str, step: str, reason: str = "", *, author: str = "") -> Job:
        """Stops the run of a step: it ends failed, with the code stopped, and what follows a failure follows."""
        return self._act(_step(ref, step), "stop", reason, author)

    def approve(self, ref: str, step: str, reason: str = "", *, data: Any = UNSET, author: str = "") -> Job:
        """Approves a step that waits for an approval. data: for the output of the step, JSON up to 64 KiB."""
        return self._act(_step(ref, step), "approve", reason, author, data=data)

    def reject(self, ref: str, step: str, reason: str = "", *, author: str = "") -> Job:
        """Rejects a step that waits for an approval: it has failed with the code rejected."""
        return self._act(_step(ref, step), "reject", reason, author)

    def send_signal(self, name: str, key: str, *, id: str = "", data: Any = UNSET, keep: Union[str, Seconds, None] = None,
                    to_all: bool = False, job: str = "", author: str = "") -> SignalResult:
        """Sends a signal to the step that waits for this name and key, or to the next one that will: it is kept for 24
        hours, or for as long as keep says. to_all: to all steps that wait now; it is not kept then. job: only steps of this
        job receive it.

        id: of the event at its source, so that an event which its source sends twice has one effect. data: for the output
        of the step, JSON up to 64 KiB."""
        body = {"name": name, "key": key, "to": "all" if to_all else "one",
                "id": id or uuid.uuid4().hex}  # with an id, the call may be repeated
        if data is not UNSET:
            body["data"] = data
        if keep is not None:
            body["keep"] = keep if isinstance(keep, str) else clock.duration(seconds(keep, "keep"))
        path = _job(job) + "/signals" if job else "/v1/signals"
        return cast("SignalResult", self._send("POST", path, body, author, safe=True))

    def _act(self, path: str, verb: str, reason: str, author: str, **more: Any) -> Job:
        body = {k: v for k, v in {"reason": reason or UNSET, **more}.items() if v is not UNSET}
        return cast(Job, self._send("POST", f"{path}/{verb}", body, author))

    def _send(self, method: str, path: str, body: Any, author: str = "", safe: bool = False, query: str = "",
              media: str = "application/json") -> Any:
        headers = {"Perdure-Author": _header("author", author)} if author else {}
        if media == "application/json":
            body = None if body is None else to_json(body)
        else:
            body = body.encode() if isinstance(body, str) else bytes(body)
        return self._ask(method, path, query=query, body=body, media=media, headers=headers, safe=safe)[1]

    # Operations.

    def alerts(self, *, job: str = "", closed: bool = False) -> Iterator[Alert]:
        """Yields all open alerts, the newest first. job: of this job only. closed: closed ones too."""
        return self._all(lambda cursor: self.list_alerts(job=job, closed=closed, limit=PAGE, cursor=cursor))

    def list_alerts(self, *, job: str = "", closed: bool = False, limit: int = 0, cursor: str = "") -> PageAlert:
        """Returns one page of alerts, as list_jobs does."""
        query = [("job", job), ("closed", "true" if closed else "")]
        return cast(PageAlert, self._page("/v1/alerts", query, limit, cursor))

    def close_alert(self, id: int, reason: str = "", *, author: str = "") -> Alert:
        """Closes an alert. Conflict for the alert of a parked or waiting step: what resumes the step closes it."""
        return cast(Alert, self._send("POST", f"/v1/alerts/{int(id)}/close", {"reason": reason} if reason else {}, author))

    def list_limits(self) -> List[Limit]:
        """Returns all limits."""
        return cast("List[Limit]", self._get("/v1/limits")["items"])

    def get_limit(self, name: str) -> Limit:
        """Returns a limit with the first hundred holders of its permits."""
        return cast(Limit, self._get(_named("limits", name)))

    def put_limit(self, name: str, max: Optional[int] = None, *, rate: str = "", burst: int = 0, per_key: "Union[int, KeyLimit, None]" = None,
                  keys: "Optional[Mapping[str, KeyLimit]]" = None, order: str = "", author: str = "") -> Limit:
        """Sets a limit: `job:TYPE` bounds the jobs of a type, `agent:NAME` the runs of an agent, and any other name the
        runs of the steps that have it in `limits`. max: permits held at once, 0 stops everything. rate: permits taken in
        a time, such as "5/s", and at once after a pause (burst). per_key: permits of each key held at once, or
        {"max", "rate", "burst"}. keys: such bounds of single keys. order: with "submitted" only the oldest job of each key
        may run. What is not given has no bound."""
        of_key = {"max": per_key} if isinstance(per_key, int) else per_key
        settings = {"max": max, "rate": rate or None, "burst": burst or None, "perKey": of_key, "keys": dict(keys) if keys else None, "order": order or None}
        body = {k: v for k, v in settings.items() if v is not None}
        return cast(Limit, self._send("PUT", _named("limits", name), body, author))

    def delete_limit(self, name: str, *, author: str = "") -> None:
        """Removes a limit."""
        self._send("DELETE", _named("limits", name), None, author)

    def list_agents(self) -> List[AgentInfo]:
        """Returns the agents that have settings, or have claimed runs in the last day."""
        return cast("List[AgentInfo]", self._get("/v1/agents")["items"])

    def get_agent(self, name: str) -> AgentInfo:
        """Returns the settings of an agent, and how many holders claim its runs."""
        return cast(AgentInfo, self._get(_named("agents", name)))

    def put_agent(
        self,
        name: str,
        ageing: Union[str, Seconds, None] = None,
        *,
        patience: Union[str, Seconds, None] = None,
        fair_by: str = "",
        weights: Optional[Mapping[str, int]] = None,
        author: str = "",
    ) -> AgentInfo:
        """Sets how long a head start one level of priority gives, and how long a step waits for room before it reserves a host.

        Both are seconds, a timedelta, or a duration like "10m". fair_by, such as "job.labels.customer", divides the ready
        steps into shares, which get runs in turn; weights are those of single shares. What is missing gets its default.
        """
        body: Dict[str, Any] = {}
        for field, value in (("ageing", ageing), ("patience", patience)):
            if value is not None:
                body[field] = value if isinstance(value, str) else clock.duration(seconds(value, field))
        if fair_by:
            body["fairBy"] = fair_by
        if weights:
            body["weights"] = dict(weights)
        return cast(AgentInfo, self._send("PUT", _named("agents", name), body, author))

    def delete_agent(self, name: str, *, author: str = "") -> None:
        """Removes the settings of an agent, which has the defaults then."""
        self._send("DELETE", _named("agents", name), None, author)

    # Schedules: jobs that start at given times.

    def schedules(self, *, state: str = "") -> Iterator[Schedule]:
        """Yields all schedules, in the order of their names. state: active, paused or ended ones only."""
        return self._all(lambda cursor: self.list_schedules(state=state, limit=PAGE, cursor=cursor))

    def list_schedules(self, *, state: str = "", limit: int = 0, cursor: str = "") -> PageSchedule:
        """Returns one page of schedules, as list_jobs does."""
        return cast(PageSchedule, self._page("/v1/schedules", [("state", state)], limit, cursor))

    def get_schedule(self, name: str) -> Schedule:
        """Returns a schedule with its next times and the jobs of it that run."""
        return cast(Schedule, self._get(_named("schedules", name)))

    def put_schedule(self, name: str, settings: Mapping[str, Any], *, dry_run: bool = False, author: str = "") -> Schedule:
        """Creates or replaces a schedule. settings are those of docs/rest.md: one of `cron`, `every` and `at`, and `job`,
        for example {"cron": "30 2 * * *", "timezone": "Europe/Warsaw", "job": {"definition": "report"}}. dry_run: stores
        nothing, and returns what the schedule would be."""
        query = "dryRun=true" if dry_run else ""
        return cast(Schedule, self._send("PUT", _named("schedules", name), settings, author, safe=True, query=query))

    def delete_schedule(self, name: str, *, author: str = "") -> None:
        """Deletes a schedule with its history. Its jobs stay."""
        self._send("DELETE", _named("schedules", name), None, author)

    def pause_schedule(self, name: str, reason: str = "", *, author: str = "") -> Schedule:
        """Pauses a schedule: it starts no jobs. Jobs that run go on."""
        return cast(Schedule, self._send("POST", _named("schedules", name) + "/pause", {"reason": reason} if reason else {}, author, safe=True))

    def resume_schedule(self, name: str, *, catch_up: bool = False, author: str = "") -> Schedule:
        """Resumes a schedule. The times that have passed meanwhile are left out, or with catch_up caught up as after an
        outage."""
        return cast(Schedule, self._send("POST", _named("schedules", name) + "/resume", {"catchUp": catch_up}, author, safe=True))

    def trigger_schedule(self, name: str, at: str = "", *, author: str = "") -> ScheduleFired:
        """Starts the job of a time at once, also while the schedule is paused. at: the nominal time, such as
        "2026-12-01T01:30:00Z"; by default now. A time that has a job already gets no second one, so that a call with a time
        may be repeated; `created` says whether the job is new."""
        return cast(ScheduleFired, self._send("POST", _named("schedules", name) + "/trigger", {"at": at} if at else {}, author, safe=bool(at)))

    def backfill_schedule(self, name: str, from_: str, to: str, *, parallel: int = 0, dry_run: bool = False, again: bool = False,
                          author: str = "") -> Backfill:
        """Starts the jobs of the times from `from_` on and before `to` that have none. parallel: how many of them may be
        unsettled at once; 4 if not given. again: also times that have a job get a new one. dry_run: stores nothing, and
        returns which times would get one."""
        body: Dict[str, Any] = {"from": from_, "to": to, "dryRun": dry_run, "again": again}
        if parallel:
            body["parallel"] = parallel
        return cast(Backfill, self._send("POST", _named("schedules", name) + "/backfill", body, author, safe=dry_run))

    def next_times(self, name: str, n: int = 0) -> List[str]:
        """Returns the next times of a schedule: 5, or n, at most 100."""
        query = f"n={n}" if n else ""
        return cast("List[str]", self._ask("GET", _named("schedules", name) + "/next", query=query, safe=True)[1]["items"])

    def firings(self, name: str) -> Iterator[Firing]:
        """Yields the history of a schedule, newest first: each time with its job, or why it has none."""
        return self._all(lambda cursor: self.list_firings(name, limit=PAGE, cursor=cursor))

    def list_firings(self, name: str, *, limit: int = 0, cursor: str = "") -> PageFiring:
        """Returns one page of the history of a schedule, as list_jobs does."""
        return cast(PageFiring, self._page(_named("schedules", name) + "/firings", [], limit, cursor))

    # Stored definitions. Each version is immutable, and one is the current one.

    def definitions(self) -> Iterator[StoredDefinition]:
        """Yields all stored definitions, in the order of their names, without the definitions themselves."""
        return self._all(lambda cursor: self.list_definitions(limit=PAGE, cursor=cursor))

    def list_definitions(self, *, limit: int = 0, cursor: str = "") -> PageDefinition:
        """Returns one page of stored definitions, as list_jobs does."""
        return cast(PageDefinition, self._page("/v1/definitions", [], limit, cursor))

    def get_definition(self, name: str) -> StoredDefinition:
        """Returns a stored definition: NAME is the current version, NAME@7 the seventh. For that of a job, see definition."""
        return cast(StoredDefinition, self._get(_named("definitions", name)))

    def put_definition(self, name: str, definition: Definition, *, author: str = "") -> StoredDefinition:
        """Stores a definition as a new version. A mapping is sent as JSON, text as YAML. The same definition is the same
        version. The first version becomes the current one; others are promoted."""
        media = "application/json" if isinstance(definition, Mapping) else "application/yaml"
        return cast(StoredDefinition, self._send("PUT", _named("definitions", name), definition, author, safe=True, media=media))

    def promote_definition(self, name: str, version: int, *, author: str = "") -> StoredDefinition:
        """Makes a version the current one."""
        return cast(StoredDefinition, self._send("POST", _named("definitions", name) + "/promote", {"version": version}, author, safe=True))

    def delete_definition(self, name: str, *, author: str = "") -> None:
        """Deletes a version that is not the current one (NAME@7), or all of them (NAME). Jobs stay as they are. Conflict if a
        schedule uses it."""
        self._send("DELETE", _named("definitions", name), None, author)

    def list_nodes(self) -> List[Node]:
        """Returns the nodes of the grid, with the roles that each leads."""
        return cast("List[Node]", self._get("/v1/nodes")["items"])

    def job_schema(self) -> Dict[str, Any]:
        """Returns the JSON Schema of definitions."""
        return cast("Dict[str, Any]", self._get("/v1/schema/job.json"))

    def ready(self) -> Health:
        """Returns if the server takes work. Raises Unavailable, with the reason, if it does not."""
        return cast(Health, self._call("GET", "/readyz", safe=True)[1])

    def _get(self, path: str) -> Any:
        return self._ask("GET", path, safe=True)[1]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any other call of docs/rest.md: `client.call("GET", "/openapi.json")`. A GET may be repeated."""
        return self._ask(method, path, body=None if body is None else to_json(body), safe=method == "GET")[1]

    def _ask(self, method: str, path: str, *, query: str = "", body: Optional[bytes] = None,
             media: str = "application/json", headers: Optional[Mapping[str, str]] = None,
             safe: bool = False, timeout: float = ANSWER_TIMEOUT, size: Optional[int] = None) -> Tuple[int, Any]:
        """_call, repeated where that is safe and the server is away for a moment, or too busy (429): then nothing was done."""
        retry, began, attempt = clock.Backoff(0.1, 2.0), time.monotonic(), 1
        while True:
            try:
                return self._call(method, path, query=query, body=body, media=media, headers=headers, safe=safe, timeout=timeout, size=size)
            except (Unavailable, BacklogFull) as e:
                busy = e.code in ("backlogFull", "tooManyRequests")
                wait = retry.draw(e.retry_after if busy else min(e.retry_after, 5.0))
                if time.monotonic() - began + wait > self._patience if busy else not safe or attempt >= ATTEMPTS:
                    raise
            attempt += 1
            self._sleep(wait)

    def _sleep(self, s: float) -> None:
        if self._stop is None:
            time.sleep(s)
        else:
            self._stop.sleep(s)

    def _call(self, method: str, path: str, *, query: str = "", body: Optional[bytes] = None,
              media: str = "application/json", headers: Optional[Mapping[str, str]] = None,
              timeout: float = ANSWER_TIMEOUT, safe: bool = False, size: Optional[int] = None) -> Tuple[int, Any]:
        stop, connection = self._stop, self._pool.take()
        try:
            if stop is None:
                return connection.ask(method, path, query=query, body=body, media=media, headers=headers, timeout=timeout,
                                      safe=safe, size=size)
            with stop.guards(connection):
                return connection.ask(method, path, query=query, body=body, media=media, headers=headers, timeout=timeout,
                                      safe=safe, until=stop.event, size=size)
        finally:
            self._pool.put(connection)

    # Agents.

    def host(self, *agents: Agent, name: str = "", heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0,
             secrets_dir: Optional[str] = None) -> Host:
        """An agent host inside of a program that does other things too: `with client.host(agent):` starts it, and
        drains it at the end, for at most `grace`. Or call start() and drain(grace) yourself. secrets_dir: see serve."""
        return Host(self._connect, agents, holder=holder(name), heartbeat=heartbeat, grace=grace, secrets_dir=secrets_dir,
                    store=self._store if self._offload else None)

    def serve(self, *agents: Agent, name: str = "", heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0,
              secrets_dir: Optional[str] = None, stop: Optional[threading.Event] = None) -> None:
        """Claims runs for the agents, executes them here and reports, until SIGTERM, SIGINT, or `stop` is set. Then it
        drains: what has not started is given back, what runs may finish within the grace. A second signal kills.

        name is the prefix of the holder's name; by default the host's name. A suffix makes it unique.
        heartbeat: in seconds; after the death of this process, its runs are dispatched again so long after its last
        heartbeat. None: after completeWithin.
        secrets_dir: a directory with a file for each secret that inputs refer to (${secret.NAME}). A secret without a
        file is that of the environment variable PERDURE_SECRET_NAME.
        Times are seconds, timedeltas, or texts such as "30s".
        Raises NotDrained, which names the runs, if the grace was over before everything was reported. Raises Denied if the
        server answers at the start that the token is not valid, or may not carry out runs of these agents; later, calls that
        fail are repeated.
        """
        self._check_token(agents)
        stop = stop or threading.Event()
        with _signals(stop), self.host(*agents, name=name, heartbeat=heartbeat, grace=grace, secrets_dir=secrets_dir):
            while not stop.wait(1.0):  # a signal may reach another thread: this one must wake to act on it
                pass


    def _check_token(self, agents: Sequence[Agent]) -> None:
        """Raises Denied if the server says that this client may not carry out runs of the agents."""
        try:
            me = self._call("GET", "/v1/me", timeout=IDENTITY_TIMEOUT, safe=True)[1]
        except Denied as e:
            raise Denied(e.code, f"no runs are claimed: {e.message}", TOKEN_HINT, e.status) from e
        except Error:  # claims wait until the server is there
            return
        role, own = me.get("role"), me.get("agents") or []
        for agent in agents:
            if role != "admin" and (role != "agent" or agent.name not in own):
                raise Denied("forbidden", f"no runs are claimed: the token {me.get('name')}, user role {role}, may not carry out runs of "
                             f"the agent {agent.name}", TOKEN_HINT, 403)


class _Pool:
    """Connections that are kept between calls."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._mu = threading.Lock()
        self._idle: List[Connection] = []

    def take(self) -> Connection:
        with self._mu:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def put(self, connection: Connection) -> None:
        with self._mu:
            if len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._mu:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def holder(name: str = "") -> str:
    """A name of this incarnation of the process, never used again: what a dead one held is not ours."""
    name = (name or socket.gethostname() or "python").lstrip("@")[:150]
    return f"{name}-{os.getpid()}-{secrets.token_hex(5)}"


@contextmanager
def _signals(stop: threading.Event) -> Generator[None, None, None]:
    """Sets stop on SIGTERM and SIGINT, once; then they do what they did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def stopped(*_: object) -> None:
        restore()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, stopped)
    try:
        yield
    finally:
        restore()


MAX_REASONS_TOLD = 3


def _why(job: Optional[Job]) -> str:
    """Why the first steps of a job are not running; those that only wait for others say nothing new."""
    why = [(name, step["why"]) for name, step in (job["steps"] if job and "steps" in job else {}).items() if "why" in step]
    told = [f"step {name}: {reason['text']}" for name, reason in why if reason["reason"] != "afterSteps"]
    if len(told) > MAX_REASONS_TOLD:
        told[MAX_REASONS_TOLD:] = ["…"]
    return ": " + "; ".join(told) if told else ""


def _permanent(e: Unavailable) -> bool:
    """Whether asking again is pointless: something that is not a Perdure server has answered."""
    return 0 < e.status < 500 and e.code != "tooManyRequests"


def _header(name: str, value: str) -> str:
    """A value that can be sent in a header as it is."""
    if value != value.strip() or not value.isprintable():
        raise Invalid("invalid", f"{name}: {value!r} cannot be sent in a header: use printable characters, and no space at the ends")
    return value


def _token(text: str, what: str) -> str:
    """A token without the space around it. The error does not repeat the text, which may be a secret."""
    token = text.strip()
    if not token or not all("!" <= c <= "~" for c in token):
        raise Invalid("invalid", f"{what} has no token: a token is one word, such as pdr_…")
    return token


def _read_token(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read(MAX_TOKEN + 1)
    except OSError as e:
        raise Invalid("invalid", f"the token cannot be read: {e}") from e
    if len(text) > MAX_TOKEN:
        raise Invalid("invalid", f"the token file {path} is larger than {MAX_TOKEN} bytes")
    return _token(text, f"the token file {path}")


def _segment(name: str) -> str:
    """A name as a part of a path."""
    return name.replace(".", "%2E") if name in (".", "..") else urllib.parse.quote(name, safe="@:")


def _job(ref: str) -> str:
    if not ref:
        raise Invalid("invalid", "a job is named by an id, a key, or @latest")
    return "/v1/jobs/" + _segment(ref)


def _step(ref: str, name: str) -> str:
    if not name:
        raise Invalid("invalid", "the name of the step is empty")
    return f"{_job(ref)}/steps/{_segment(name)}"


def _named(kind: str, name: str) -> str:
    if not name:
        raise Invalid("invalid", f"{kind[:-1]}: the name is empty")
    return f"/v1/{kind}/{_segment(name)}"
