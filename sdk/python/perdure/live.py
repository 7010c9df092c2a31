"""What an agent host knows about one run, from its arrival until the answer to its report."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from . import clock
from .agent import Agent, Run
from .clock import Instant
from .connection import Connection

Handle = Tuple[str, str, int]  # job, step, run: it is started at most once


@dataclass(eq=False)
class Hosted:
    """An agent, and how much of it is in use."""

    agent: Agent
    claims: Connection
    busy: int = 0  # handlers that work on a run that is ours
    held: int = 0  # runs that are live: busy, unreported, or past their time and still not back

    def free(self) -> int:
        """How many runs may be claimed. Those that have left their slot (because their report is not answered yet, or
        because their handler goes on after their time) do not count unless they pile up to as many again."""
        return min(self.agent.slots - self.busy, 2 * self.agent.slots - self.held)


@dataclass(eq=False)
class Live:
    """A run that this host has to do with. What changes is guarded by the host's lock."""

    run: Run
    hosted: Hosted
    lock: Instant       # the run is ours until then, and never after
    ultimatum: Instant  # the lock never moves past it
    running: bool = False
    lost: bool = False  # not ours any more: nothing is said about it
    report: Optional[bytes] = None
    mended: bool = False  # its report was refused as invalid once, and replaced
    progress: Optional[bytes] = None
    task: Optional[asyncio.Task[Any]] = None  # of an async handler

    @property
    def handle(self) -> Handle:
        return (self.run.job, self.run.step, self.run.number)


@dataclass
class Term:
    """Until when a run is ours, and how far that can be moved."""

    lock: Instant
    ultimatum: Instant
    over: bool = False      # it is not ours any more
    unwanted: bool = False  # it is ours, and the job has turned meanwhile


def term_of(run: Run, since: Instant, answer: Dict[str, Any]) -> Term:
    """Counts the remaining time from an instant at or before the server's own reading. How far the ultimatum
    is from the lock's end is the server's to say; a lock beyond the ultimatum is none."""
    lock = since.add(clock.millis(answer["remainingMs"]))
    if not answer.get("lockedUntil") or run.complete_by is None:
        return Term(lock, lock)
    beyond = (run.complete_by - clock.parse_time(answer["lockedUntil"])).total_seconds()
    ultimatum = lock.add(max(-clock.MAX_SECONDS, min(beyond, clock.MAX_SECONDS)))
    return Term(clock.earlier(lock, ultimatum), ultimatum)


class Remembered:
    """A bounded memory of the runs that the host was through with most recently."""

    def __init__(self, most: int = 8192) -> None:
        self._most = most
        self._seen: OrderedDict[Handle, None] = OrderedDict()

    def __contains__(self, handle: Handle) -> bool:
        return handle in self._seen

    def add(self, handle: Handle) -> None:
        self._seen[handle] = None
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
