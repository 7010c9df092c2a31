"""What a user writes: agents and their handlers; and what a handler gets: a Run."""

from __future__ import annotations

import asyncio
import datetime
import functools
import inspect
import re
import threading
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, TypeVar

from . import clock
from .clock import Instant
from .connection import to_json
from .errors import Cancelled, Failed, Rejected, Seconds, seconds
from .secret import Redactor
from .typed import Reader, readers

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

Do = Callable[..., Any]    # (input, run) -> output, or a coroutine of it
Undo = Callable[..., Any]  # (input, output, run)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(eq=False)
class Run:
    """One numbered attempt of a step, as a handler gets it. In a test of your own, make one:
    `Run(input={"amount": 5}, key="k")`.

    key      the same in every run of a turn: pass it on, so that the receiver recognizes a repetition
    number   grows with every run of the step: pass it on, so that the receiver can refuse older runs
    do_key   in an undo, the key that the do runs had
    output   in an undo, the output of the do run; None if that run never reported
    cancelled  is set when the run is over. `reason` then says why: timeUp (its time has passed), notOurs (it belongs
             to another holder), stopped (the job does not want it any more), draining (this process is ending)

    A handler that is `async def` gets an AsyncRun instead.
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
    _interrupt: Optional[Callable[[], None]] = field(default=None, repr=False)  # cancels the task of an async handler
    _now: Callable[[], Instant] = field(default=clock.now, repr=False)
    _secrets: Sequence[str] = field(default=(), repr=False)  # pointers of the strings of input that refer to secrets
    _redactor: Optional[Redactor] = field(default=None, repr=False)  # of the secrets, once they are resolved

    def __repr__(self) -> str:
        """The fields, without the values of secrets: a run may be logged."""
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        text = f"{type(self).__name__}({shown})"
        return text if self._redactor is None else self._redactor.text(text)

    def remaining(self) -> float:
        """Seconds until the deadline of the run, or 0 once the run is over. Infinite outside of an agent host."""
        if self.cancelled.is_set():
            return 0.0
        return self._until().left(self._now()) if self._until else float("inf")

    def check(self) -> None:
        """Raises Cancelled once the run is over. Call it between the parts of long work."""
        if self.cancelled.is_set():
            raise Cancelled(self.reason)

    def sleep(self, s: Seconds) -> None:
        """Sleeps, and raises Cancelled as soon as the run is over."""
        self.cancelled.wait(seconds(s))
        self.check()

    def progress(self, value: Any) -> None:
        """Sends value, as JSON of at most 4 KiB, with the next heartbeat: every third of `heartbeat`. It is shown with the
        step. What was set after the last heartbeat of a run is not sent; the output has the end result."""
        data = to_json(value if self._redactor is None else self._redactor.output(value))
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
        """Ends the run for its handler. The agent host decides what is reported. For tests."""
        if not self.cancelled.is_set():
            self.reason = reason
            self.cancelled.set()
            if self._interrupt:
                self._interrupt()


class AsyncRun(Run):
    """The run of a handler that is `async def`. In a test of your own, make one: `AsyncRun(input={"amount": 5}, key="k")`.

    It differs from Run in two ways. `await run.sleep(s)` suspends the handler instead of its thread. And once the run
    is over, asyncio.CancelledError is raised where the handler awaits, as asyncio does for any cancelled task: let it
    pass, after cleaning up. `run.check()` raises Cancelled as in a plain handler, which is an asyncio.CancelledError.
    """

    async def sleep(self, s: Seconds) -> None:  # type: ignore[override]
        """Sleeps. `await run.sleep(1)` is interrupted by asyncio.CancelledError as soon as the run is over."""
        self.check()
        await asyncio.sleep(seconds(s))
        self.check()


class Agent:
    """Wraps one service or resource, and executes the runs of the steps that name it.

        payments = Agent("payments", slots=8)

        @payments.do("charge")
        def charge(input, run): ...

        @payments.undo("charge")
        def refund(input, output, run): ...

    slots: how many runs at once. A plain function is called on a thread of its own; an `async def` runs on the event
    loop. One agent may have both, and its slots bound the sum.

    If the annotation of `input` is a dataclass or a model of pydantic, the input is read into it; one that does not fit is
    rejected with the code `input`, and the handler is not called. Of an undo, `output` is read in the same way. Fields of
    dataclasses may be str, int, float, bool, datetime and date (ISO 8601), Decimal (a number or text), UUID, an Enum (by its
    value), Literal, Optional, Union (the first type that fits), list, dict, tuple, dataclasses, models of pydantic, and Any;
    a TypedDict is any object. TypeError for another type when the handler is registered.

    A handler returns a value of JSON or of these types, or raises. If a step's definition has `undo` and its action has no
    undo here, the undo run is rejected: give each such action an undo, if only one that does nothing.
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
        self._readers: Dict[str, Dict[str, Reader]] = {}  # by direction and action

    def do(self, action: str) -> Callable[[F], F]:
        """Decorates what does an action: a function of (input, run), plain or async, that returns the output."""
        return self._register(self._do, action)

    def undo(self, action: str) -> Callable[[F], F]:
        """Decorates what undoes an action: a function of (input, output, run), plain or async. output is None if the do
        run never reported. An undo must cope with a do that never happened: go by `run.do_key`."""
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
            if _is(inspect.isgeneratorfunction, f) or _is(inspect.isasyncgenfunction, f):
                raise TypeError("a handler must return its output, and cannot yield: its body would never run")
            _check_arguments(f, handlers is self._undo)
            if action in handlers:
                raise ValueError(f"agent {self.name} has two handlers for {action!r}")
            read = readers(f, handlers is self._undo)
            handlers[action] = f
            self._readers[f"{'undo' if handlers is self._undo else 'do'} {action}"] = read
            return f

        return decorate

    @property
    def has_async(self) -> bool:
        """Whether any of its handlers is `async def`."""
        return any(is_async(f) for f in [*self._do.values(), *self._undo.values()])

    def is_async(self, action: str, direction: str) -> bool:
        """Whether the handler of an action in a direction ("do" or "undo") is `async def`, and so takes an AsyncRun."""
        return is_async((self._undo if direction == "undo" else self._do).get(action))

    def execute(self, run: Run) -> Any:
        """Calls the handler of the run's action and direction, and returns its output. If the handler is `async def`,
        this is a coroutine: `await agent.execute(run)`. An action without a handler is rejected."""
        answer = self._call(run)
        if inspect.isawaitable(answer):
            if self.is_async(run.action, run.direction):
                return answer
            if inspect.iscoroutine(answer):
                answer.close()
            raise TypeError(f'the handler of "{run.action}" is a plain function that returned a coroutine: '
                            "make it `async def`, and its decorators too")
        return None if run.direction == "undo" else answer

    def _call(self, run: Run) -> Any:
        if run.direction == "undo":
            undo = self._undo.get(run.action)
            if undo is not None:
                return undo(self._read("input", run), self._read("output", run), run)
            if run.action in self._do:
                return self._no_undo(run)
            return self._unknown(run)
        do = self._do.get(run.action)
        return do(self._read("input", run), run) if do is not None else self._unknown(run)

    def _read(self, argument: str, run: Run) -> Any:
        reader = self._readers.get(f"{run.direction} {run.action}", {}).get(argument)
        value = getattr(run, argument)
        return value if reader is None else reader(value)

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


def is_async(f: Any) -> bool:
    """Whether f, or the function of the functools.partial f, is `async def`."""
    while isinstance(f, functools.partial):
        f = f.func
    return _is(inspect.iscoroutinefunction, f)


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


def interrupted(run: Run, error: Optional[BaseException]) -> bool:
    """Whether a handler ended because its run was over: with Cancelled, or as a cancelled task of asyncio. A
    CancelledError of another origin is an error like any other."""
    return isinstance(error, Cancelled) or isinstance(error, asyncio.CancelledError) and run.cancelled.is_set()


def report_of(run: Run, output: Any, error: Optional[BaseException]) -> Dict[str, Any]:
    """The report of a handler's output or error. An output that is not JSON, or over 1 MiB, is reported as failed."""
    report: Dict[str, Any] = {"job": run.job, "step": run.step, "run": run.number}
    shown = (lambda text: text) if run._redactor is None else run._redactor.text  # before a text is cut
    if error is None:
        try:
            if run._redactor is not None:
                output = run._redactor.output(output)
            size = len(to_json(output))
        except (TypeError, ValueError, RecursionError) as e:
            error = Failed(str(e), code="outputInvalid")
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
    over = interrupted(run, error)
    code = failure.code if failure else "" if over else type(error).__name__
    if not code and run.reason == "stopped":
        code = "stopped"
    said: Dict[str, Any] = {"message": _clip(_text(shown(str(error))) or (run.reason if over else type(error).__name__), MAX_MESSAGE)}
    if code:
        said["code"] = _clip(_text(shown(code)), MAX_CODE)
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


def run_of(agent: str, raw: Mapping[str, Any], kind: Type[Run] = Run) -> Run:
    """A Run from what a claim answered. KeyError, TypeError or ValueError if it is none."""
    return kind(
        input=raw["input"], output=raw.get("output"), direction=raw["direction"], key=raw["key"],
        do_key=raw.get("doKey", ""), number=int(raw["run"]), job=raw["job"], step=raw["step"],
        action=raw["action"], agent=agent, priority=raw.get("priority", 0),
        complete_by=clock.parse_time(raw["completeBy"]), traceparent=raw.get("traceparent", ""),
        _secrets=[str(pointer) for pointer in raw.get("secrets") or ()])


