"""What a user writes: agents and their handlers; and what a handler gets: a Run."""

from __future__ import annotations

import datetime
import inspect
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

from . import clock
from .clock import Instant
from .connection import to_json
from .errors import Cancelled, Failed, Rejected, Seconds, seconds

DEFAULT_SLOTS = 16
MAX_SLOTS = 1000
MAX_NAME = 128
MAX_ACTIONS_NAMED = 10
MAX_PROGRESS = 4 << 10
MAX_OUTPUT = 1 << 20
MAX_MESSAGE = 4 << 10
MAX_CODE = 128
MAX_RETRY_AFTER = 24 * 3600.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # as definitions have it

Do = Callable[..., Any]    # (input, run) -> output
Undo = Callable[..., Any]  # (input, output, run)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(eq=False)
class Run:
    """One numbered letting-out of a step, as its handler gets it. In a test of your own, make one:
    `Run(input={"amount": 5}, key="k")`.

    key      the same in every run of a turn: pass it on, for the other side to recognise a repetition
    number   grows with every run of the step: pass it on, for the other side to refuse older ones
    do_key   in an undo, the key that the do runs had
    output   in an undo, what the do run left; None if it never answered
    cancelled  is set when the run is over: its time is up, it is another's, nobody wants it any more, or
             the process is ending. `reason` then says which: timeUp, notOurs, stopped, draining
    """

    input: Any = None
    output: Any = None
    direction: str = "do"  # or "undo"
    key: str = ""
    do_key: str = ""
    number: int = 1
    job: str = ""
    step: str = ""
    action: str = ""
    agent: str = ""
    priority: int = 0
    complete_by: Optional[datetime.datetime] = None
    traceparent: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    reason: str = ""
    _until: Optional[Callable[[], Instant]] = field(default=None, repr=False)
    _send: Optional[Callable[[bytes], None]] = field(default=None, repr=False)

    def remaining(self) -> float:
        """Seconds until the ultimatum, or 0 once the run is over. Infinite outside of an agent host."""
        if self.cancelled.is_set():
            return 0.0
        return self._until().left(clock.now()) if self._until else float("inf")

    def check(self) -> None:
        """Raises Cancelled once the run is over. Call it between the parts of long work."""
        if self.cancelled.is_set():
            raise Cancelled(self.reason)

    def sleep(self, s: Seconds) -> None:
        """Sleeps, and raises Cancelled as soon as the run is over."""
        self.cancelled.wait(seconds(s))
        self.check()

    def progress(self, value: Any) -> None:
        """Sends value, as JSON of at most 4 KiB, with the next heartbeat. It is shown with the step."""
        data = to_json(value)
        if len(data) > MAX_PROGRESS:
            raise ValueError(f"progress of {len(data)} bytes is over {MAX_PROGRESS}")
        if self._send:
            self._send(data)

    def headers(self) -> Dict[str, str]:
        """What the run is, as the HTTP headers that the agent `http` sends: key, number, remaining time …"""
        h = {"Idempotency-Key": self.key, "Perdure-Run": str(self.number), "Perdure-Job": self.job,
             "Perdure-Step": self.step, "Perdure-Direction": self.direction}
        if self.do_key:
            h["Perdure-Do-Key"] = self.do_key
        if self.traceparent:
            h["traceparent"] = self.traceparent
        left = self.remaining()
        if left != float("inf"):
            h["Perdure-Remaining-Ms"] = str(int(left * 1000))
        return h

    def cancel(self, reason: str) -> None:
        """Ends the run for its handler; what comes of it is the agent host's to say. For tests."""
        if not self.cancelled.is_set():
            self.reason = reason
            self.cancelled.set()


class Agent:
    """Wraps one service or resource, and executes the runs that ask for it.

        payments = Agent("payments", slots=8)

        @payments.do("charge")
        def charge(input, run): ...

        @payments.undo("charge")
        def refund(input, output, run): ...

    slots: how many runs at once, each on a thread of its own. A handler answers with a value of JSON (or a
    dataclass), or raises. An undo that is asked for and is not there is rejected: give one to each action whose steps
    have `undo` in their definition, if only one that does nothing.
    """

    def __init__(self, name: str, *, slots: int = DEFAULT_SLOTS) -> None:
        if not 1 <= len(name) <= MAX_NAME:
            raise ValueError(f"an agent's name has 1 to {MAX_NAME} characters")
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name: letters, digits, `.`, `_` and `-`, starting with a letter or digit")
        if not 1 <= slots <= MAX_SLOTS:
            raise ValueError(f"slots are 1 to {MAX_SLOTS}")
        self.name, self.slots = name, slots
        self._do: Dict[str, Do] = {}
        self._undo: Dict[str, Undo] = {}

    def do(self, action: str) -> Callable[[F], F]:
        """Decorates what does an action: a function of (input, run) that returns the output."""
        return self._register(self._do, action)

    def undo(self, action: str) -> Callable[[F], F]:
        """Decorates what undoes it: a function of (input, output, run). output is None if the do run never
        answered, and an undo must cope with a do that never happened: go by `run.do_key`."""
        return self._register(self._undo, action)

    @property
    def actions(self) -> List[str]:
        """The actions that it has a handler for."""
        return list({**self._do, **self._undo})

    def _register(self, handlers: Dict[str, Any], action: str) -> Callable[[F], F]:
        if callable(action):  # @agent.do, and then the function
            way = "do" if handlers is self._do else "undo"
            raise TypeError(f'the name of the action is missing: @agent.{way}("{getattr(action, "__name__", "NAME")}")')
        if not isinstance(action, str) or not action:
            raise TypeError(f"{action!r} is no name of an action")

        def decorate(f: F) -> F:
            if not callable(f):
                raise TypeError(f"{f!r} is no function")
            if _is_async(f):
                raise TypeError("a handler is called on a thread, and cannot be async: use asyncio.run in it")
            if _is(inspect.isgeneratorfunction, f):
                raise TypeError("a handler must return its output, and cannot yield: its body would never run")
            _check_arguments(f, handlers is self._undo)
            if action in handlers:
                raise ValueError(f"agent {self.name} has two handlers for {action!r}")
            handlers[action] = f
            return f

        return decorate

    def execute(self, run: Run) -> Any:
        """Calls the handler of the run's action and direction. An action without one is rejected."""
        if run.direction == "undo":
            undo = self._undo.get(run.action)
            if undo is not None:
                undo(run.input, run.output, run)
            elif run.action in self._do:
                self._no_undo(run)
            else:
                self._unknown(run)
            return None
        do = self._do.get(run.action)
        return do(run.input, run) if do is not None else self._unknown(run)

    def _unknown(self, run: Run) -> None:
        names = sorted(self._do)
        if len(names) > MAX_ACTIONS_NAMED:
            names[MAX_ACTIONS_NAMED:] = [f"{len(names) - MAX_ACTIONS_NAMED} more"]
        raise Rejected(f'agent {self.name} has no action "{run.action}"; it has {", ".join(names) or "none"}',
                       code="noAction", no_effect=True)

    def _no_undo(self, run: Run) -> None:
        # Nobody but a person knows whether there is something to undo.
        raise Rejected(
            f'agent {self.name} has no undo for "{run.action}", and the step\'s definition asks for one: '
            "give the handler an undo (one that does nothing, if nothing is to be undone) and resume the job; "
            "or settle the step by hand, and leave undo out of the definition", code="noUndo", no_effect=True)


def _is(kind: Callable[[Any], bool], f: Any) -> bool:
    """Whether f, or the __call__ of an object f, is a function of that kind."""
    return kind(f) or kind(getattr(f, "__call__", None))


def _is_async(f: Any) -> bool:
    return _is(inspect.iscoroutinefunction, f) or _is(inspect.isasyncgenfunction, f)


def _check_arguments(f: Any, undo: bool) -> None:
    """Refuses a handler that cannot be called with the arguments of a run."""
    given = ("input", "output", "run") if undo else ("input", "run")
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return  # some functions written in C have no signature
    try:
        signature.bind(*given)
    except TypeError as e:
        name, way = getattr(f, "__name__", f), "undo" if undo else "do"
        raise TypeError(f"the handler {name}{signature} cannot be called with ({', '.join(given)}), as {way} calls it: {e}") from None


def report_of(run: Run, output: Any, error: Optional[BaseException]) -> Dict[str, Any]:
    """The report that a handler's answer makes. An output that is no JSON, or over 1 MiB, makes a failed one."""
    report: Dict[str, Any] = {"job": run.job, "step": run.step, "run": run.number}
    if error is None:
        try:
            size = len(to_json(output))
        except (TypeError, ValueError, RecursionError) as e:
            error = Failed(f"output: {e}", code="outputInvalid")
        else:
            if size <= MAX_OUTPUT:
                return {**report, "outcome": "done", **({} if output is None else {"output": output})}
            error = Failed(f"output of {size} bytes is over {MAX_OUTPUT}", code="outputTooLarge")
    failure = error if isinstance(error, Failed) else None
    no_effect = failure is not None and failure.no_effect
    if run.reason == "draining":
        # Not the run's fault: it counts no failure. What it has changed is not known, unless the handler says so.
        return {**report, "outcome": "returned", **({} if no_effect else {"effect": "unknown"}),
                "error": {"message": "cut short by a drain of its host"}}
    code = failure.code if failure else "" if isinstance(error, Cancelled) else type(error).__name__
    if not code and run.reason == "stopped":
        code = "stopped"
    said: Dict[str, Any] = {"message": _clip(_text(str(error)) or type(error).__name__, MAX_MESSAGE)}
    if code:
        said["code"] = _clip(_text(code), MAX_CODE)
    if failure and failure.retry_after > 0:
        said["retryAfter"] = clock.duration(min(failure.retry_after, MAX_RETRY_AFTER))
    return {**report, "outcome": "rejected" if isinstance(error, Rejected) else "failed", "error": said,
            **({"effect": "none"} if no_effect else {})}


def _text(s: str) -> str:
    """s as every store can keep it: valid UTF-8 without NUL."""
    return s.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _clip(s: str, n: int) -> str:
    """At most n bytes of s, cut at a character's edge."""
    return s.encode()[:n].decode(errors="ignore")


def run_of(agent: str, raw: Mapping[str, Any]) -> Run:
    """A Run from what a claim answered. KeyError, TypeError or ValueError if it is none."""
    return Run(
        input=raw["input"], output=raw.get("output"), direction=raw["direction"], key=raw["key"],
        do_key=raw.get("doKey", ""), number=int(raw["run"]), job=raw["job"], step=raw["step"],
        action=raw["action"], agent=agent, priority=raw.get("priority", 0),
        complete_by=clock.parse_time(raw["completeBy"]), traceparent=raw.get("traceparent", ""))


