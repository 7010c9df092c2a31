"""The async client, where a server is not needed: it has what the plain one has, and ends what it began."""

import asyncio
import inspect
import logging
import threading
import time
import unittest

from perdure import Agent, AsyncClient, Client, NotDrained, Unavailable
from tests.test_connection import Server, answer


logging.getLogger("perdure").addHandler(logging.NullHandler())
logging.getLogger("perdure").propagate = False


class TestAsyncClient(unittest.TestCase):
    def test_it_has_every_method_of_the_plain_client(self):
        for name, method in inspect.getmembers(Client, inspect.isfunction):
            if name.startswith("_"):
                continue
            own = getattr(AsyncClient, name)
            want, got = inspect.signature(method).parameters, inspect.signature(own).parameters
            with self.subTest(name):
                self.assertEqual(list(want), list(got))
                if name == "host":
                    continue
                if inspect.isgeneratorfunction(method) or "Iterator" in str(inspect.signature(method).return_annotation):
                    self.assertTrue(inspect.isasyncgenfunction(own))
                else:
                    self.assertTrue(inspect.iscoroutinefunction(own))
                self.assertTrue(own.__doc__)
        self.assertRaises(ValueError, AsyncClient, calls=0)
        self.assertRaises(ValueError, AsyncClient, "http://u:p@h")

    def test_a_call_that_is_cancelled_ends_on_its_thread_too(self):
        server = Server(self, "silence", answer(b'{"items": []}'))

        async def main():
            async with AsyncClient(server.url, calls=1) as client:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.get("j"), 0.3)
                self.assertEqual(await client.list_limits(), [])  # the one thread is free again

        began = time.monotonic()
        asyncio.run(main())
        self.assertLess(time.monotonic() - began, 25)

    def test_a_pause_before_a_repetition_is_cancelled_too(self):
        async def main():
            async with AsyncClient("http://127.0.0.1:1", calls=1) as client:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.wait("j"), 1)
                with self.assertRaises(Unavailable):
                    await client.ready()

        began = time.monotonic()
        asyncio.run(main())
        self.assertLess(time.monotonic() - began, 25)


class TestAsyncHost(unittest.TestCase):
    def agent(self):
        agent = Agent("a")

        @agent.do("x")
        async def x(input, run):
            pass

        return agent

    def test_wrong_arguments_are_refused_at_once(self):
        async def main():
            async with AsyncClient("http://127.0.0.1:1") as client:
                self.assertRaisesRegex(ValueError, "has no handlers", client.host, Agent("a"))
                self.assertRaises(ValueError, client.host, self.agent(), heartbeat=0.01)
                host = client.host(self.agent(), grace=1)
                async with host:
                    pass
                with self.assertRaisesRegex(RuntimeError, "used before"):
                    async with host:
                        pass

        asyncio.run(main())

    def test_serve_ends_with_its_event_and_with_its_task(self):
        async def main():
            async with AsyncClient("http://127.0.0.1:1") as client:
                stop = asyncio.Event()
                asyncio.get_running_loop().call_later(0.1, stop.set)
                await asyncio.wait_for(client.serve(self.agent(), grace=1, stop=stop), 60)
                task = asyncio.ensure_future(client.serve(self.agent(), grace=1))
                await asyncio.sleep(0.1)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await asyncio.wait_for(task, 60)

        before = threading.active_count()
        asyncio.run(main())
        deadline = time.monotonic() + 60
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(threading.active_count(), before, "no thread is left")

    def test_what_was_not_drained_is_raised(self):
        begun = threading.Event()

        async def main():
            agent = Agent("a")

            @agent.do("x")
            def x(input, run):
                begun.set()
                time.sleep(3)

            run = (b'{"job": "j", "step": "s", "action": "x", "run": 1, "direction": "do", "input": null, "key": "k", "priority": 0,'
                   b'"lockedUntil": "2100-01-01T00:00:00Z", "completeBy": "2100-01-01T00:00:00Z", "remainingMs": 60000}')
            server = Server(self, answer(b'{"runs": [' + run + b']}'), "silence", "silence")
            async with AsyncClient(server.url) as client:
                with self.assertRaisesRegex(NotDrained, "1 handler did not return: agent"):
                    async with client.host(agent, grace=0.5, heartbeat=None):
                        while not begun.is_set():
                            await asyncio.sleep(0.01)

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
