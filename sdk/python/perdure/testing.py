"""For tests of your own: handlers without a server, in virtual time; agents that are fakes; and a server for a test.

    from perdure.testing import Fake, Server, Trial

    def test_a_charge_is_made_once():
        with Trial(payments, "charge", {"amount": 5}) as trial:
            trial.crash("after")          # the first run has its effect, and nobody learns of it
            trial.do()                    # it is run again, under the same key
            assert bank.charges == {trial.do_key: 5}
            trial.undo()
            assert bank.charges == {}
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from collections import deque
from dataclasses import dataclass
from typing import IO, Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple, TypeVar

from .agent import Agent, AsyncRun, Run, report_of
from .client import Client
from .clock import Instant
from .connection import to_json
from .errors import NoEffect, Rejected, Seconds, Unavailable, seconds
from .host import Host
from .loop import Outcome, close, outcome

T = TypeVar("T")
LOCK = 10.0           # how long the run of an agent that has died stays its run: the heartbeat of an agent host
MAX_BACKOFF = 60.0
MAX_ATTEMPTS = 1000   # of a turn
LOG_LINES = 100       # of a server that are kept for an error message

REASONS = ("timeUp", "notOurs", "stopped", "draining")


class Parked(Exception):
    """What do() and undo() of a Trial raise if the step would be parked: its runs are used up, or one was rejected."""

    def __init__(self, message: str, attempt: Attempt) -> None:
        super().__init__(message)
        self.attempt = attempt


@dataclass(frozen=True)
class Attempt:
    """One run of a Trial, as it was reported. outcome: done, failed, rejected, returned; or expired: there was no report
    within the time of the run."""

    number: int
    direction: str
    key: str
    outcome: str
    output: Any = None
    code: str = ""
    message: str = ""
    retry_after: str = ""
    no_effect: bool = False


@dataclass
class _Plan:
    """What befalls the nth run of a direction."""

    kind: str  # before, after: a crash; or the reason of a cancellation
    direction: str
    nth: int
    after: float = 0.0
    met: bool = False


class Trial:
    """One step of a job, without a server: do() and undo() carry out its runs as an agent host would, with the keys, the
    order of runs and the retries that the step would have.

    Time is virtual. `run.sleep`, `run.cancelled.wait`, and in async handlers asyncio's timers take no time, and
    `elapsed` says how much of it has passed. `time.sleep` is not virtual, nor is input and output: while an async
    handler waits for a socket or a thread, time passes as it does.

    current  undone, done, or unsure, as the server would have it
    output   of the do run that was reported done
    runs     all runs so far: a list of Attempt
    do_key   the key of the latest do
    elapsed  virtual seconds since the begin
    """

    def __init__(self, agent: Agent, action: str, input: Any = None, *, step: str = "", job: str = "job_test",
                 attempts: int = 5, backoff: Seconds = 1, complete_within: Seconds = 300, not_on: Sequence[str] = ()) -> None:
        if not 1 <= attempts <= MAX_ATTEMPTS:
            raise ValueError(f"attempts are 1 to {MAX_ATTEMPTS}")
        self._agent, self._action, self._input = agent, action, _plain(input)
        self._job, self._step, self._attempts = job, step or action, attempts
        self._backoff, self._time, self._not_on = seconds(backoff), seconds(complete_within), tuple(not_on)
        self._plans: List[_Plan] = []
        self._turn, self._direction = 0, ""
        self._error: Optional[BaseException] = None  # that the latest run raised
        self.current, self.output, self.do_key, self.elapsed = "undone", None, "", 0.0
        self.runs: List[Attempt] = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        missed = [p for p in self._plans if not p.met]
        if missed and kind is None:
            told = ", ".join(f"{p.kind} of {p.direction} run {p.nth}" for p in missed)
            raise AssertionError(f"planned, and never met: {told}")

    def crash(self, when: str, *, direction: str = "do", nth: int = 1) -> Trial:
        """Lets the process die in the nth run of a direction from now: "before" the handler is called, or "after" it has
        returned. In both cases nothing is reported, and the run expires."""
        if when not in ("before", "after"):
            raise ValueError(f'{when!r}: a crash comes "before" or "after" the handler')
        return self._planned(when, direction, nth, 0)

    def cancel(self, reason: str, *, after: Seconds = 0, direction: str = "do", nth: int = 1) -> Trial:
        """Cancels the nth run of a direction from now, once it has taken `after` (of virtual time). The reasons are those
        of Run.reason: timeUp, notOurs, stopped, draining."""
        if reason not in REASONS:
            raise ValueError(f"{reason!r} is none of {', '.join(REASONS)}")
        return self._planned(reason, direction, nth, seconds(after))

    def _planned(self, kind: str, direction: str, nth: int, after: float) -> Trial:
        if direction not in ("do", "undo"):
            raise ValueError(f'{direction!r}: a direction is "do" or "undo"')
        if nth < 1:
            raise ValueError("runs are counted from 1")
        before = sum(a.direction == direction for a in self.runs)
        self._plans.append(_Plan(kind, direction, before + nth, after))
        return self

    def do(self) -> Any:
        """Desires the step done: runs the handler until it is, and returns its output. Raises Parked if that fails; another
        do() then retries it, as an operator's resume would."""
        if self.current != "done":
            self._turn_to("do")
            self.do_key = self._key()
            self._runs("do")
        return self.output

    def undo(self) -> None:
        """Desires the step undone. Nothing is run if nothing was done. Raises Parked if the undo fails."""
        if self.current != "undone":
            self._turn_to("undo")
            self._runs("undo")

    def _turn_to(self, direction: str) -> None:
        if direction != self._direction:
            self._turn, self._direction = self._turn + 1, direction

    def _key(self) -> str:
        return f"{self._job}/{self._step}/{self._turn}"

    def _runs(self, direction: str) -> None:
        failures = 0
        while True:
            attempt = self._attempt(direction)
            self.runs.append(attempt)
            if attempt.outcome == "done":
                self.current = "done" if direction == "do" else "undone"
                self.output = attempt.output if direction == "do" else None
                return
            if attempt.outcome == "returned":
                continue
            failures += 1
            error = self._error
            why = f"run {attempt.number} {attempt.outcome}: {attempt.message}"
            if attempt.outcome == "rejected" or attempt.code in self._not_on:
                raise Parked(f"{direction} of {self._step} is parked: {why}", attempt) from error
            if failures >= self._attempts:
                raise Parked(f"{direction} of {self._step} is parked after {failures} failures: {why}", attempt) from error
            pause = min(self._backoff * 2.0 ** min(failures - 1, 30), MAX_BACKOFF)
            self.elapsed += max(pause, float(attempt.retry_after[:-2] or 0) / 1000)

    def _attempt(self, direction: str) -> Attempt:
        self._error = None
        number = len(self.runs) + 1
        nth = sum(a.direction == direction for a in self.runs) + 1
        plans = [p for p in self._plans if p.direction == direction and p.nth == nth and not p.met]
        crash = next((p.kind for p in plans if p.kind in ("before", "after")), "")
        before, self.current = self.current, "unsure"
        expired = Attempt(number, direction, self._key(), "expired", code="expired", message="no report before the lock passed")
        for p in plans:
            if p.kind in ("before", "after"):
                p.met = True
        if crash == "before":
            self.elapsed += LOCK
            return expired
        kind = AsyncRun if self._agent.is_async(self._action, direction) else Run
        run = kind(input=_plain(self._input), output=_plain(self.output) if direction == "undo" else None, direction=direction,
                   key=self._key(), do_key=self.do_key if direction == "undo" else "", number=number, job=self._job,
                   step=self._step, action=self._action, agent=self._agent.name)
        execution = _Execution(run, self.elapsed, self._time, [p for p in plans if p.kind in REASONS])
        output, error = execution.of(self._agent)
        self._error = error
        self.elapsed = execution.now
        report = json.loads(to_json(report_of(run, output, error)))
        if crash == "after":
            self.elapsed += LOCK
            return expired
        if run.reason in ("timeUp", "notOurs"):
            return expired  # the agent host reports nothing
        failure = report.get("error", {})
        no_effect = report.get("effect") == "none" or report["outcome"] == "returned" and "effect" not in report
        if report["outcome"] != "done" and no_effect:
            self.current = before
        return Attempt(number, direction, run.key, report["outcome"], report.get("output"), failure.get("code", ""),
                       failure.get("message", ""), failure.get("retryAfter", ""), no_effect)


def _plain(value: Any) -> Any:
    """The value as it arrives after a way through JSON."""
    return json.loads(to_json(value))


class _Execution:
    """One run in virtual time."""

    def __init__(self, run: Run, now: float, time: float, plans: List[_Plan]) -> None:
        self.run, self.now = run, now
        self.ends = sorted([(now + time, "timeUp", None), *((now + p.after, p.kind, p) for p in plans)], key=lambda e: e[0])
        deadline = Instant(now + time, now + time)
        run._until, run._now = lambda: deadline, lambda: Instant(self.now, self.now)
        run.cancelled = _VirtualEvent(self)

    def of(self, agent: Agent) -> Tuple[Any, Optional[BaseException]]:
        self.pass_time(0.0)
        try:
            if isinstance(self.run, AsyncRun):
                return _on_thread(lambda: self._async(agent))
            return agent.execute(self.run), None
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            return None, e

    def pass_time(self, s: Optional[float]) -> None:
        """Lets time pass: to the end of the run, at most."""
        to = float("inf") if s is None else self.now + s
        if self.ends and self.ends[0][0] <= to and not self.run.cancelled.is_set():
            self.now = max(self.now, self.ends[0][0])
            self._end()
        elif to != float("inf"):
            self.now = to

    def _end(self) -> None:
        _, reason, plan = self.ends.pop(0)
        if plan is not None:
            plan.met = True
        self.run.cancel(reason)

    def _async(self, agent: Agent) -> Outcome:
        loop = _VirtualLoop(self)
        try:
            return loop.run_until_complete(self._task(loop, agent))
        finally:
            close(loop)

    async def _task(self, loop: asyncio.AbstractEventLoop, agent: Agent) -> Outcome:
        task = loop.create_task(outcome(agent, self.run))

        def interrupt() -> None:
            task.cancel()

        def end() -> None:
            if not self.run.cancelled.is_set():
                self._end()

        self.run._interrupt = interrupt
        if self.run.cancelled.is_set():
            loop.call_soon(interrupt)
        elif self.ends:
            loop.call_at(self.ends[0][0], end)
        return await task


class _VirtualEvent(threading.Event):
    """The event that a run is over; to wait for it takes no time."""

    def __init__(self, execution: _Execution) -> None:
        super().__init__()
        self._execution = execution

    def wait(self, timeout: Optional[float] = None) -> bool:
        if not self.is_set():
            self._execution.pass_time(timeout)
        return self.is_set()


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when all of its tasks wait for timers. While a socket or a thread
    is waited for, its clock moves as a real one does."""

    def __init__(self, execution: _Execution) -> None:
        super().__init__()
        self._execution, self._threads = execution, 0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select
        idle = len(selector.get_map())  # the loop's own pipe

        def jump(timeout: Optional[float]) -> Any:
            events = select(0)
            if events or timeout is not None and timeout <= 0:
                return events
            if self._threads or len(selector.get_map()) > idle or timeout is None:
                began = time.monotonic()
                events = select(timeout)
                execution.now += time.monotonic() - began
                return events
            execution.now += timeout
            return events

        selector.select = jump

    def time(self) -> float:
        return self._execution.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1


def _on_thread(call: Callable[[], T]) -> T:
    """The result of a call on another thread: a test may have an event loop on its own."""
    results: List[T] = []
    errors: List[BaseException] = []

    def run(context: contextvars.Context) -> None:
        try:
            results.append(context.run(call))
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=run, args=(contextvars.copy_context(),), name="perdure: trial", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Fake(Agent):
    """An agent with a service behind it as one should be, for a job of which you test the other steps. It takes every
    action, recognizes a repetition by its key, undoes by the key of the do, and refuses a do that comes after its undo.

        stock = Fake("stock")
        stock.fail("reserve", 2)                    # the first two runs of the step fail
        stock.on("pack", lambda input, run: 7)      # the output of another step
    """

    def __init__(self, name: str, *, slots: int = 16) -> None:
        super().__init__(name, slots=slots)
        self._mu = threading.Lock()
        self._behaviors: Dict[str, Callable[[Any, Run], Any]] = {}
        self._failures: Dict[str, Tuple[int, Exception]] = {}
        self._effects: Dict[str, List[Any]] = {}  # by key: step, output, done, undone
        self._attempts: Dict[Tuple[str, str], int] = {}

    @property
    def actions(self) -> List[str]:
        return ["*"]

    def on(self, step: str, handler: Callable[[Any, Run], Any]) -> Fake:
        """Sets the output of a step's do runs, or their error: a function of (input, run)."""
        self._behaviors[step] = handler
        return self

    def fail(self, step: str, times: int, error: Optional[Exception] = None) -> Fake:
        """Lets the next do runs of a step fail, so many times, before any effect."""
        self._failures[step] = (times, error or NoEffect("a failure that the test wants"))
        return self

    def execute(self, run: Run) -> Any:
        with self._mu:
            self._attempts[run.step, run.direction] = self.attempts(run.step, run.direction) + 1
            effect = self._effects.setdefault(run.do_key or run.key, [run.step, None, False, False])
            if run.direction == "undo":
                effect[3] = True
                return None
            if effect[3]:
                raise Rejected("it was undone before it came", code="undone", no_effect=True)
            if effect[2]:
                return effect[1]
            times, error = self._failures.get(run.step, (0, None))
            if times and error is not None:
                self._failures[run.step] = (times - 1, error)
                raise error
            if run.step in self._behaviors:
                effect[1] = self._behaviors[run.step](run.input, run)
            effect[2] = True
            return effect[1]

    def attempts(self, step: str, direction: str = "do") -> int:
        """How many runs of a step there were."""
        return self._attempts.get((step, direction), 0)

    def check(self, client: Client) -> None:
        """Raises an AssertionError if on() or fail() names a step that no job of the server has: the name is misspelled.
        A Server checks the fakes of its clients' hosts at the end of its `with`."""
        with self._mu:
            missing = {*self._behaviors, *self._failures} - {step for step, _ in self._attempts}
        if not missing:
            return
        known: Set[str] = set()
        for job in client.list():
            known.update(client.get(job["id"]).get("steps", {}))
        missing -= known
        if missing and known:
            raise AssertionError(f"fake {self.name}: no job has a step {', '.join(sorted(missing))}; the steps are {', '.join(sorted(known))}")

    def effects(self, step: str) -> int:
        """How many effects of a step there are: done, and not undone."""
        with self._mu:
            return sum(name == step and done and not undone for name, _, done, undone in self._effects.values())


class Server:
    """A `perdure serve` for tests, with a store of its own, from the begin of a `with` to its end:

        with Server() as server, server.client() as client, client.host(payments):
            client.submit(...)

    The program is `binary`, or $PERDURE_BINARY, or `perdure` on the PATH. If there is none, the test is skipped (as by
    unittest.SkipTest, which pytest understands too), or fails if $PERDURE_TEST_REQUIRE_SERVER is set.

    arguments: further ones for `perdure serve`. url: where it listens, on a free port of this machine.
    """

    def __init__(self, binary: str = "", *, arguments: Sequence[str] = (), timeout: float = 60.0) -> None:
        self._binary, self._arguments, self._timeout = binary, list(arguments), timeout
        self.url = ""
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._directory: Optional[tempfile.TemporaryDirectory[str]] = None
        self._fakes: List[Fake] = []
        self._log: Deque[str] = deque(maxlen=LOG_LINES)
        self._listens = threading.Event()

    @staticmethod
    def find(binary: str = "") -> str:
        """The path of the program; empty if there is none."""
        return shutil.which(binary or os.environ.get("PERDURE_BINARY") or "perdure") or ""

    def __enter__(self) -> Server:
        binary = self.find(self._binary)
        if not binary:
            why = "there is no program perdure: put it on the PATH, or set PERDURE_BINARY to its path"
            if os.environ.get("PERDURE_TEST_REQUIRE_SERVER"):
                raise FileNotFoundError(why)
            raise unittest.SkipTest(why)
        self._directory = tempfile.TemporaryDirectory(prefix="perdure-test-")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--store", f"sqlite:{self._directory.name}/perdure.db",
                   "--sweep-period", "100ms", *self._arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), name="perdure: log", daemon=True)
        self._reader.start()
        try:
            self._until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None and self._process is not None:
                self._check_fakes()
        finally:
            self.stop()

    def client(self, *, author: str = "test") -> Client:
        """A client of this server."""
        return _TestClient(self, author)

    def _check_fakes(self) -> None:
        """Fails the test if a fake has a behavior for a step that no job has (see Fake.check)."""
        with Client(self.url) as client:
            for fake in self._fakes:
                fake.check(client)

    def log(self) -> str:
        """The last lines of the server's log."""
        return "".join(self._log)

    def stop(self) -> None:
        """Ends the server, and removes its store."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._reader.join()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                text = line.decode(errors="replace")
                self._log.append(text)
                if not self.url and text.startswith("listening on "):
                    self.url = text[len("listening on "):].split(",")[0].strip()
                    self._listens.set()
        self._listens.set()

    def _until_ready(self) -> None:
        end = time.monotonic() + self._timeout
        self._listens.wait(self._timeout)
        while self.url and time.monotonic() < end:
            with self.client() as client:
                try:
                    client.ready()
                    return
                except Unavailable:
                    time.sleep(0.05)
        raise RuntimeError(f"perdure serve is not ready:\n{self.log()}")


class _TestClient(Client):
    """A client whose hosts register their fakes with the server."""

    def __init__(self, server: Server, author: str) -> None:
        super().__init__(server.url, author=author)
        self._server = server

    def host(self, *agents: Agent, name: str = "", heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0,
             secrets_dir: Optional[str] = None) -> Host:
        self._server._fakes.extend(a for a in agents if isinstance(a, Fake))
        return super().host(*agents, name=name, heartbeat=heartbeat, grace=grace, secrets_dir=secrets_dir)


__all__ = ["Attempt", "Fake", "Parked", "Server", "Trial"]
