"""Asks a server: submit, wait, undo, list; and carries agents against it."""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import threading
import time
import urllib.parse
from contextlib import contextmanager
from typing import Any, Dict, Generator, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union, cast

from . import clock
from .agent import Agent
from .connection import ANSWER_TIMEOUT, Connection, to_json
from .errors import BacklogFull, Invalid, Unavailable
from .host import Host
from .types import BatchResult, Entry, Job, StepDetail

Definition = Union[Mapping[str, Any], str, bytes]  # JSON as an object, or YAML as text

MAX_BATCH = 1000              # jobs in a call
MAX_BATCH_BYTES = 16 << 20    # of a call's body, and of its definition as often as there are jobs
MAX_WAIT = 60.0               # of one call; a longer wait is several
OUTAGE = 60.0                 # how long a wait bears a server that does not answer
ATTEMPTS = 3                  # of what may be repeated, where the server is away for a moment
IDLE_CONNECTIONS = 8


class Submitted(NamedTuple):
    job: Job
    created: bool  # False: the key was submitted before, with the same definition; be it by a lost attempt of this call


def at_rest(job: Job) -> bool:
    """Whether a job is settled (done, or wholly undone) or parked (a person is needed)."""
    return job["phase"] in ("settled", "parked")


class Client:
    """One server: `url`, or $PERDURE_SERVER, or http://127.0.0.1:7420. It may be used by many threads.

    author: who acts, for a job's history. headers: sent with every request, to a proxy in front of the server
    that asks for a token, say. patience: for how many seconds a call is repeated that the server is too busy for (429).
    What a server refuses is raised as perdure.Error.
    """

    def __init__(self, url: str = "", *, author: str = "",
                 headers: Optional[Mapping[str, str]] = None, patience: float = OUTAGE) -> None:
        self._url = url or os.environ.get("PERDURE_SERVER") or "http://127.0.0.1:7420"
        self._headers = {**({"Perdure-Author": author} if author else {}), **(headers or {})}
        self._patience = patience
        self._idle: List[Connection] = []
        self._mu = threading.Lock()
        self._connect()  # says what is wrong with the URL; it does not connect yet

    def _connect(self) -> Connection:
        return Connection(self._url, self._headers)

    def close(self) -> None:
        """Closes what is kept for the next request."""
        with self._mu:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Jobs.

    def submit(self, definition: Definition) -> Submitted:
        """Stores a job, before it answers. A mapping is sent as JSON, text as YAML.

        Give the definition a `key`: the same key is the same job, so that it may be submitted again where an answer
        was lost. A mapping with a key is, by this call itself, some times.
        """
        if isinstance(definition, Mapping):
            safe, media, body = bool(definition.get("key")), "application/json", to_json(definition)
        else:
            safe, media = False, "application/yaml"
            body = definition.encode() if isinstance(definition, str) else bytes(definition)
        status, job = self._ask("POST", "/v1/jobs", body=body, media=media, safe=safe)
        return Submitted(job, status == 201)

    def submit_all(self, jobs: Iterable[Mapping[str, Any]],
                   definition: Optional[Mapping[str, Any]] = None) -> List[BatchResult]:
        """Stores many jobs in few calls, each answered for itself: `{"id", "key", "created"}` or `{"error"}`.

        With a definition, jobs are `{"key"?, "input"?, "priority"?, "labels"?}` of it; without one, definitions.
        If a call fails, it raises, and those before it are stored. With keys, all may be sent again.
        """
        base = to_json(definition) if definition is not None else b""
        results: List[BatchResult] = []
        items = [(bool(j.get("key")), to_json(j)) for j in jobs]
        while items:
            size, n = len(base), 0
            while n < min(len(items), MAX_BATCH):
                size += len(items[n][1]) + 1
                if n and (size + 64 > MAX_BATCH_BYTES or len(base) * (n + 1) > MAX_BATCH_BYTES):
                    break
                n += 1
            body = (b'{"definition":%s,' % base if base else b"{") + b'"jobs":[%s]}' % b",".join(i for _, i in items[:n])
            _, answer = self._ask("POST", "/v1/batches/submit", body=body, safe=all(k for k, _ in items[:n]))
            if len(answer["results"]) != n:
                raise Unavailable("unavailable", f"{len(answer['results'])} answers came to {n} questions")
            results += answer["results"]
            items = items[n:]
        return results

    def get(self, ref: str) -> Job:
        """A job with its steps, and why each unsettled one is not running. ref: an id, a key, or "@latest"."""
        return cast(Job, self._ask("GET", _job(ref), safe=True)[1])

    def step(self, ref: str, name: str) -> StepDetail:
        """Returns one step with its input and output in full. (In a job, values above 64 KiB are left out.)"""
        return cast("StepDetail", self._ask("GET", f"{_job(ref)}/steps/{urllib.parse.quote(name, safe='')}", safe=True)[1])

    def definition(self, ref: str) -> Dict[str, Any]:
        """Returns the job's definition. Submitted again, it is the same job."""
        return cast("Dict[str, Any]", self._ask("GET", _job(ref) + "/definition", safe=True)[1])

    def wait(self, ref: str, timeout: Optional[float] = None) -> Job:
        """Waits until the job is at rest: settled or parked. Look at `current`: "done", "undone", or "unsure".
        TimeoutError after `timeout` seconds, which says what it waits for; the job goes on. A server that is away is waited for, a minute."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        lost: Optional[float] = None  # since when the server is away
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
                lost = None
                retry.reset()
            except Unavailable as e:
                now = time.monotonic()
                lost = now if lost is None else lost
                if 0 < e.status < 500 and e.code != "tooManyRequests" or now - lost > OUTAGE:  # not a Perdure server, or unavailable for too long
                    raise
                time.sleep(min(retry.draw(e.retry_after), max(0.0, end - now)))
            if time.monotonic() >= end:
                raise TimeoutError(f"{ref} was not at rest after {timeout} s{_why(job)}")
            if time.monotonic() - asked < 0.1:
                time.sleep(0.1)

    def _wait_once(self, ref: str, wait: float) -> Job:
        query = urllib.parse.urlencode({"wait": clock.duration(wait)}) if wait >= 0.001 else ""
        return cast(Job, self._call("GET", _job(ref), query=query, timeout=wait + ANSWER_TIMEOUT, safe=True)[1])

    def list(self, *, phase: str = "", type: str = "", current: str = "", desired: str = "", key: str = "",
             labels: Optional[Mapping[str, str]] = None) -> Iterator[Job]:
        """Jobs, the newest first, without their steps. It asks for more as you go on."""
        query = [(k, v) for k, v in (("phase", phase), ("type", type), ("current", current), ("desired", desired),
                                     ("key", key), ("limit", "500")) if v]
        query += [("label", f"{k}={v}") for k, v in (labels or {}).items()]
        cursor = ""
        while True:
            text = urllib.parse.urlencode(query + ([("cursor", cursor)] if cursor else []))
            _, page = self._ask("GET", "/v1/jobs", query=text, safe=True)
            yield from page["items"]
            cursor = page.get("nextCursor", "")
            if not cursor:
                return

    def history(self, ref: str) -> List[Entry]:
        """Returns all of a job's history, oldest first: what went wrong, and who acted on the job."""
        entries: List[Entry] = []
        cursor = ""
        while True:
            text = urllib.parse.urlencode([("limit", "500")] + ([("cursor", cursor)] if cursor else []))
            _, page = self._ask("GET", _job(ref) + "/history", query=text, safe=True)
            entries += cast("List[Entry]", page["items"])
            cursor = page.get("nextCursor", "")
            if not cursor:
                return entries

    def undo(self, ref: str, reason: str = "") -> Job:
        """Wants the job undone, from now on: each step that was let out is undone, the last first. What already
        holds changes nothing. wait() then says when it is."""
        return self._act(ref, "undo", reason)

    def redo(self, ref: str, reason: str = "") -> Job:
        """Wants the job done, from now on: what is undone is done again."""
        return self._act(ref, "redo", reason)

    def resume(self, ref: str, reason: str = "") -> Job:
        """Lets what is parked be tried again."""
        return self._act(ref, "resume", reason)

    def give_up(self, ref: str, reason: str = "") -> Job:
        """Ends a job as it stands. Its history names who did so."""
        return self._act(ref, "giveUp", reason)

    def _act(self, ref: str, verb: str, reason: str) -> Job:
        return cast(Job, self.call("POST", f"{_job(ref)}/{verb}", {"reason": reason} if reason else {}))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any other call of docs/rest.md: `client.call("PUT", "/v1/limits/job:order", {"max": 10})`."""
        return self._ask(method, path, body=None if body is None else to_json(body), safe=method == "GET")[1]

    def _ask(self, method: str, path: str, *, query: str = "", body: Optional[bytes] = None,
             media: str = "application/json", safe: bool = False) -> Tuple[int, Any]:
        """_call, repeated where that is safe and the server is away for a moment, or too busy (429): then nothing was done."""
        retry, began, attempt = clock.Backoff(0.1, 2.0), time.monotonic(), 1
        while True:
            try:
                return self._call(method, path, query=query, body=body, media=media, safe=safe)
            except (Unavailable, BacklogFull) as e:
                busy = e.code in ("backlogFull", "tooManyRequests")
                wait = retry.draw(e.retry_after if busy else min(e.retry_after, 5.0))
                if time.monotonic() - began + wait > self._patience if busy else not safe or attempt >= ATTEMPTS:
                    raise
            attempt += 1
            time.sleep(wait)

    def _call(self, method: str, path: str, *, query: str = "", body: Optional[bytes] = None,
              media: str = "application/json", timeout: float = ANSWER_TIMEOUT, safe: bool = False) -> Tuple[int, Any]:
        with self._mu:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect()
        try:
            return connection.ask(method, path, query=query, body=body, media=media, timeout=timeout, safe=safe)
        finally:
            with self._mu:
                keep = len(self._idle) < IDLE_CONNECTIONS
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    # Agents.

    def host(self, *agents: Agent, name: str = "", heartbeat: Optional[float] = 10.0) -> Host:
        """An agent host to start() and drain(grace) yourself, inside of a program that does other things too."""
        return Host(self._connect, agents, holder=holder(name), heartbeat=heartbeat)

    def serve(self, *agents: Agent, name: str = "", heartbeat: Optional[float] = 10.0, grace: float = 30.0,
              stop: Optional[threading.Event] = None) -> None:
        """Claims runs for the agents, executes them here and reports, until SIGTERM, SIGINT, or `stop` is set. Then it
        drains: what has not started is given back, what runs may finish within the grace. A second signal kills.

        name is the prefix of the holder's name; by default the host's name. A suffix makes it unique.
        heartbeat: in seconds; a run is another's so long after this process has died. None: after completeWithin.
        Raises NotDrained if the grace was over before everything was told.
        """
        stop = stop or threading.Event()
        with _signals(stop):
            host = self.host(*agents, name=name, heartbeat=heartbeat)
            host.start()
            while not stop.wait(1.0):  # a signal may reach another thread: this one must wake to act on it
                pass
            host.drain(grace)


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
    why = [(name, step["why"]) for name, step in ((job or {}).get("steps") or {}).items() if step.get("why")]
    told = [f"step {name}: {reason['text']}" for name, reason in why if reason["reason"] != "afterSteps"]
    if len(told) > MAX_REASONS_TOLD:
        told[MAX_REASONS_TOLD:] = ["…"]
    return ": " + "; ".join(told) if told else ""


def _job(ref: str) -> str:
    if not ref:
        raise Invalid("invalid", "a job is named by an id, a key, or @latest")
    return "/v1/jobs/" + (ref.replace(".", "%2E") if ref in (".", "..") else urllib.parse.quote(ref, safe="@"))
