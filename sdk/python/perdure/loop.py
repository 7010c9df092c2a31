"""An event loop on a thread of its own, for async handlers of a program that has no event loop."""

from __future__ import annotations

import asyncio
import threading

CLOSE_TIMEOUT = 1.0  # how long tasks may take to end after their cancellation


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
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_TIMEOUT))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def close(self) -> None:
        """Cancels what still runs, and waits for a bounded time until the loop is closed."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(2 * CLOSE_TIMEOUT)
