"""Async handlers on an event loop; and an event loop on a thread of its own, for a program that has none."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Optional, Tuple

from .agent import Agent, Run

CLOSE_TIMEOUT = 1.0  # how long tasks may take to end after their cancellation

Outcome = Tuple[Any, Optional[BaseException]]


async def outcome(agent: Agent, run: Run) -> Outcome:
    """What the async handler of a run returns or raises. It raises nothing itself: SystemExit would end the loop."""
    try:
        return await agent.execute(run), None
    except BaseException as e:
        return None, e


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Closes a loop that runs no more, after the cancellation of its tasks."""
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_TIMEOUT))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class LoopThread:
    """Runs an event loop from its creation until close()."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="perdure: event loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            close(self.loop)
            asyncio.set_event_loop(None)

    def close(self) -> None:
        """Cancels what still runs, and waits for a bounded time until the loop is closed."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(2 * CLOSE_TIMEOUT)
