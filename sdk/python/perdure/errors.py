"""Two families: what a server said no to (Error), and what a handler says about its run (Failed)."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any, Dict, List, Optional, Type, Union

Seconds = Union[int, float, datetime.timedelta]


def seconds(d: Seconds) -> float:
    """A length of time in seconds, whichever way it was said."""
    return d.total_seconds() if isinstance(d, datetime.timedelta) else float(d)


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


class BacklogFull(Error):
    """There are too many unsettled jobs, or they arrive faster than they can be stored. Nothing was stored: submit again later."""


class Unavailable(Error):
    """The server or its store does not answer, or the server has reached a bound (`tooManyRequests`). The call may have taken
    effect all the same."""


_KINDS: Dict[str, Type[Error]] = {
    "invalid": Invalid, "malformed": Invalid, "tooLarge": Invalid, "unsupportedMediaType": Invalid,
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


class NotDrained(Exception):
    """The grace was over before everything was told: those runs expire, and are done again."""


class Failed(Exception):
    """A handler raises it to say more than that the run failed. The step is tried again.

    code: by which `retry.notOn` of a definition knows it.
    retry_after: the next attempt does not come before so much time has passed.
    no_effect: nothing was changed, so the step is where it was before instead of unsure.
    """

    def __init__(self, message: str, *, code: str = "", retry_after: Seconds = 0, no_effect: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = seconds(retry_after)
        self.no_effect = no_effect


class Rejected(Failed):
    """Trying again is pointless: the step's `onFailure` is next."""


class RetryAfter(Failed):
    """Failed, and the next attempt should not come before `after` (seconds or timedelta) has passed."""

    def __init__(self, after: Seconds, message: str, *, code: str = "", no_effect: bool = False) -> None:
        super().__init__(message, code=code, retry_after=after, no_effect=no_effect)


class NoEffect(Failed):
    """Failed, and nothing was changed."""

    def __init__(self, message: str, *, code: str = "", retry_after: Seconds = 0) -> None:
        super().__init__(message, code=code, retry_after=retry_after, no_effect=True)


class Cancelled(asyncio.CancelledError):
    """Raised in a handler by `run.check()`, and by `run.sleep()` of a plain handler, once the run is over: let it pass.

    It is asyncio's CancelledError with a name of its own, so that one `except` serves both kinds of handlers. Like
    KeyboardInterrupt it is no Exception, so that `except Exception` does not swallow it.
    """
