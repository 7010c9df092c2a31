"""Two families: what a server said no to (Error), and what a handler says about its run (Failed)."""

from __future__ import annotations

import asyncio
import datetime
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Type, Union

if TYPE_CHECKING:
    from .agent import Run

Seconds = Union[int, float, datetime.timedelta, str]  # a text as in definitions: "30s", "1m30s", "500ms"

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h|d)")


def seconds(d: Seconds, name: str = "") -> float:
    """A length of time in seconds, whichever way it was said. name: of the argument, for the error message."""
    if isinstance(d, datetime.timedelta):
        return d.total_seconds()
    if isinstance(d, str):
        parts = _PART.findall(d)
        if parts and "".join(n + unit for n, unit in parts) == d:
            return sum(float(n) * _UNITS[unit] for n, unit in parts)
    elif isinstance(d, (int, float)) and not isinstance(d, bool) and d == d:
        return float(d)
    kind = ValueError if isinstance(d, (str, float)) else TypeError
    raise kind((f"{name}: " if name else "") + f'{d!r} is no length of time: give seconds, a timedelta, or a text such as "30s"')


class Error(Exception):
    """A call that came to nothing. `code` is stable: docs/errors.md has them all.

    `errors` names each fault of a definition with its place: pointer, message, hint; and line and column, where it
    was sent as text. The message has the first few of them, those that are deepest in the definition first.
    `status` is 0 where there was no answer.
    """

    def __init__(self, code: str, message: str, hint: str = "", status: int = 0,
                 errors: Optional[List[Dict[str, Any]]] = None, retry_after: float = 0.0) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.errors = errors or []
        self.retry_after = retry_after


class Invalid(Error):
    """What was sent is wrong: a field, a reference, an expression; or it is too large."""


class NotFound(Error):
    """There is no such job."""


class Conflict(Error):
    """The rules refuse it as things stand: the key has another definition, say."""


class Denied(Error):
    """The server needs a token, the token is not valid (`unauthenticated`), or it may not make this call (`forbidden`)."""


class BacklogFull(Error):
    """There are too many unsettled jobs, or they arrive faster than they can be stored. Nothing was stored: submit again later."""


class Unavailable(Error):
    """The server or its store does not answer, or the server has reached a bound (`tooManyRequests`). The call may have taken
    effect all the same."""


_KINDS: Dict[str, Type[Error]] = {
    "invalid": Invalid, "malformed": Invalid, "tooLarge": Invalid, "unsupportedMediaType": Invalid,
    "unauthenticated": Denied, "forbidden": Denied,
    "notFound": NotFound, "conflict": Conflict, "backlogFull": BacklogFull,
    "unavailable": Unavailable, "schema": Unavailable, "inUse": Unavailable, "tooManyRequests": Unavailable,
}


MAX_FAULTS_TOLD = 5


def refusal(problem: Dict[str, Any], status: int = 0, retry_after: float = 0.0, text: bool = False) -> Error:
    """The error that a problem (RFC 9457) is. text: what is wrong was sent as text, which has lines."""
    code = str(problem.get("code", ""))
    message, hint = str(problem.get("detail") or problem.get("title") or code), str(problem.get("hint") or "")
    errors = [e if text else {k: v for k, v in e.items() if k not in ("line", "column")} for e in problem.get("errors") or []]
    if errors:
        deepest = sorted(errors, key=lambda e: -str(e.get("pointer", "")).count("/"))
        told = [_told(e) for e in deepest[:MAX_FAULTS_TOLD]]
        if len(errors) > len(told):
            told.append(f"and {len(errors) - len(told)} more")
        message, hint = "; ".join(told), ""
    return _KINDS.get(code, Error)(code, message, hint, status, errors, retry_after)


def _told(e: Dict[str, Any]) -> str:
    place = str(e.get("pointer") or "")
    if e.get("line"):
        place = f"line {e['line']}, column {e.get('column', 1)}"
    return (f"{place}: " if place else "") + str(e.get("message", "")) + (f" ({e['hint']})" if e.get("hint") else "")


MAX_RUNS_NAMED = 5


class NotDrained(Exception):
    """The grace was over, and handlers had not returned or reports were not answered. Those runs expire, and are done again.

    running: the runs whose handlers did not return. unreported: the runs whose reports were not answered. Both are lists
    of Run; the message names the first few.
    """

    def __init__(self, running: Sequence[Run] = (), unreported: Sequence[Run] = ()) -> None:
        self.running, self.unreported = list(running), list(unreported)
        parts = []
        if self.running:
            parts.append(f"{_count(self.running, 'handler')} did not return: {_named(self.running)}")
        if self.unreported:
            parts.append(f"{_count(self.unreported, 'report')} not answered: {_named(self.unreported)}")
        super().__init__("; ".join(parts) or "the host has not ended")


def _count(runs: Sequence[Run], what: str) -> str:
    return f"{len(runs)} {what}{'' if len(runs) == 1 else 's'}"


def _named(runs: Sequence[Run]) -> str:
    named = [f"agent {r.agent}, action {r.action}, job {r.job}, step {r.step}" for r in runs[:MAX_RUNS_NAMED]]
    return " / ".join([*named, *([f"{len(runs) - len(named)} more"] if len(runs) > len(named) else [])])


class Failed(Exception):
    """A handler raises it to say more than that the run failed. The step is tried again.

    code: by which `retry.notOn` of a definition knows it.
    retry_after: the next attempt does not come before so much time has passed.
    no_effect: nothing was changed, so the step is where it was before instead of unsure.
    """

    def __init__(self, message: str, *, code: str = "", retry_after: Seconds = 0, no_effect: bool = False) -> None:
        if not isinstance(code, str):
            raise TypeError(f'code: {code!r} is no text: write code="{code}"')
        super().__init__(message)
        self.code = code
        self.retry_after = seconds(retry_after, "retry_after")
        self.no_effect = no_effect


class Rejected(Failed):
    """Trying again is pointless: the step's `onFailure` is next."""


class RetryAfter(Failed):
    """Failed, and the next attempt should not come before `after` (seconds, timedelta, or a text such as "1m") has passed."""

    def __init__(self, after: Seconds, message: str, *, code: str = "", no_effect: bool = False) -> None:
        if not isinstance(message, str):
            raise TypeError(f'RetryAfter({after!r}, {message!r}): the time comes first, then the message: RetryAfter(60, "busy")')
        super().__init__(message, code=code, retry_after=seconds(after, "after"), no_effect=no_effect)


class NoEffect(Failed):
    """Failed, and nothing was changed."""

    def __init__(self, message: str, *, code: str = "", retry_after: Seconds = 0, no_effect: bool = True) -> None:
        if not no_effect:
            raise ValueError("NoEffect with no_effect=False contradicts itself: raise Failed")
        super().__init__(message, code=code, retry_after=retry_after, no_effect=True)


class Cancelled(asyncio.CancelledError):
    """Raised in a handler by `run.check()`, and by `run.sleep()` of a plain handler, once the run is over: let it pass.

    It is asyncio's CancelledError with a name of its own, so that one `except` serves both kinds of handlers. Like
    KeyboardInterrupt it is no Exception, so that `except Exception` does not swallow it.
    """
