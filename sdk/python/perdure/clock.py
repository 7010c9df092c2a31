"""Until when a run is ours, on two clocks; how long to wait; times and durations as the server writes them."""

from __future__ import annotations

import datetime
import random
import re
import threading
import time
from dataclasses import dataclass

MAX_SECONDS = 10 * 365 * 24 * 3600.0


@dataclass(frozen=True)
class Instant:
    """A moment on two clocks. The monotonic one cannot be set, and may stand still while the machine is
    suspended; the wall clock goes on then. A time is reached when the first of the two clocks reaches it."""

    mono: float
    wall: float

    def add(self, s: float) -> Instant:
        return Instant(self.mono + s, self.wall + s)

    def reached(self, now: Instant) -> bool:
        return now.mono >= self.mono or now.wall >= self.wall

    def left(self, now: Instant) -> float:
        return max(0.0, min(self.mono - now.mono, self.wall - now.wall))


def later(a: Instant, b: Instant) -> Instant:
    return Instant(max(a.mono, b.mono), max(a.wall, b.wall))


def earlier(a: Instant, b: Instant) -> Instant:
    return Instant(min(a.mono, b.mono), min(a.wall, b.wall))


def now() -> Instant:
    return Instant(time.monotonic(), time.time())


class Backoff:
    """Grows from base to most by doubling, and is drawn between half of that and all of it, so that agents
    which failed together do not come back together."""

    def __init__(self, base: float, most: float) -> None:
        self.base, self.most, self.next = base, most, 0.0

    def reset(self) -> None:
        self.next = 0.0

    def draw(self, at_least: float = 0.0) -> float:
        """How long to wait now; at_least is what a server asked for (Retry-After). Up to half of that is added: clients
        that were refused together must not all come back together."""
        self.next = min(max(2 * self.next, self.base), self.most)
        return at_least * random.uniform(1.0, 1.5) + self.next * random.uniform(0.5, 1.0)

    def pause(self, until: threading.Event, at_least: float = 0.0) -> bool:
        """Sleeps; False if `until` was set meanwhile."""
        return not until.wait(self.draw(at_least))


def millis(ms: object) -> float:
    """Seconds, from a count of milliseconds that came from outside."""
    return min(max(float(ms), 0.0) / 1000, MAX_SECONDS) if isinstance(ms, (int, float)) else 0.0


def duration(s: float) -> str:
    """Seconds as Perdure reads a duration."""
    return f"{round(s * 1000)}ms"


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


def parse_time(text: str) -> datetime.datetime:
    """An RFC 3339 time. Before Python 3.11, fromisoformat reads neither Z nor nanoseconds."""
    m = _TIME.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a time")
    whole, fraction, zone = m.groups()
    micros = (fraction or ".0")[1:7].ljust(6, "0")
    return datetime.datetime.fromisoformat(f"{whole}.{micros}{'+00:00' if zone == 'Z' else zone}")
