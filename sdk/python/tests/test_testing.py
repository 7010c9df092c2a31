"""The test kit: what it says of handlers is what a server and an agent host would do."""

import asyncio
import os
import sys
import time
import unittest
from unittest import mock

from perdure import Agent, Cancelled, Failed, NoEffect, Rejected, RetryAfter
from perdure.testing import Fake, Parked, Server, Trial


class Bank:
    def __init__(self, slots=4):
        self.charges, self.asked, self.agent = {}, [], Agent("payments", slots=slots)

        @self.agent.do("charge")
        def charge(input, run):
            self.asked.append((run.key, run.number))
            if input["amount"] < 0:
                raise Rejected("a negative amount", code="negative", no_effect=True)
            self.charges[run.key] = input["amount"]
            return {"id": run.key, "amounts": (input["amount"],)}

        @self.agent.undo("charge")
        def refund(input, output, run):
            self.asked.append((run.key, run.number, run.do_key, output))
            self.charges.pop(run.do_key, None)


class TestTrial(unittest.TestCase):
    def test_there_and_back(self):
        bank = Bank()
        trial = Trial(bank.agent, "charge", {"amount": 5}, job="j")
        self.assertEqual(trial.do(), {"id": "j/charge/1", "amounts": [5]}, "the output as JSON has it")
        self.assertEqual((trial.do()["id"], len(trial.runs), trial.current), ("j/charge/1", 1, "done"), "done already")
        trial.undo()
        trial.undo()
        self.assertEqual((trial.current, bank.charges, len(trial.runs)), ("undone", {}, 2))
        trial.do()
        self.assertEqual(bank.charges, {"j/charge/3": 5}, "a new turn has a new key")
        self.assertEqual(bank.asked[1], ("j/charge/2", 2, "j/charge/1", {"id": "j/charge/1", "amounts": [5]}))
        untouched = Trial(bank.agent, "charge", {"amount": 5})
        untouched.undo()
        self.assertEqual(untouched.runs, [], "nothing was done, and nothing is undone")

    def test_crashes(self):
        bank = Bank()
        with Trial(bank.agent, "charge", {"amount": 5}, job="j") as trial:
            trial.crash("after").crash("before", nth=2).crash("after", direction="undo")
            trial.do()
            self.assertEqual([(a.outcome, a.code) for a in trial.runs], [("expired", "expired")] * 2 + [("done", "")])
            self.assertEqual(bank.asked, [("j/charge/1", 1), ("j/charge/1", 3)], "one key, numbers that grow")
            self.assertGreater(trial.elapsed, 20)
            trial.undo()
            self.assertEqual((len(trial.runs), bank.charges), (5, {}))
        lost = Trial(bank.agent, "charge", {"amount": 7}, job="l", attempts=1).crash("after")
        self.assertRaises(Parked, lost.do)
        self.assertEqual((lost.current, bank.charges), ("unsure", {"l/charge/1": 7}))
        lost.undo()
        self.assertEqual((bank.asked[-1][2:], bank.charges), (("l/charge/1", None), {}), "the output is not known")
        with self.assertRaisesRegex(AssertionError, "never met: after of undo run 1"):
            with Trial(bank.agent, "charge", {"amount": 5}) as trial:
                trial.crash("after", direction="undo")
        for wrong in (lambda: trial.crash("during"), lambda: trial.crash("after", direction="redo"), lambda: trial.crash("after", nth=0),
                      lambda: trial.cancel("bored"), lambda: Trial(bank.agent, "charge", attempts=0)):
            self.assertRaises(ValueError, wrong)

    def test_failures(self):
        agent, errors = Agent("a"), []

        @agent.do("x")
        def x(input, run):
            if errors:
                raise errors.pop(0)
            return run.number

        errors += [RetryAfter(3600, "busy"), NoEffect("nothing"), ValueError("odd"), SystemExit(3)]
        trial = Trial(agent, "x")
        self.assertEqual(trial.do(), 5)
        self.assertEqual([(a.outcome, a.code, a.no_effect) for a in trial.runs],
                         [("failed", "", False), ("failed", "", True), ("failed", "ValueError", False), ("failed", "SystemExit", False), ("done", "", False)])
        self.assertTrue(3600 <= trial.elapsed < 3700, trial.elapsed)

        errors[:] = [NoEffect("nothing")]
        trial = Trial(agent, "x", attempts=1)
        with self.assertRaisesRegex(Parked, "do of x is parked after 1 failures: run 1 failed: nothing"):
            trial.do()
        self.assertEqual(trial.current, "undone")

        errors[:] = [ValueError("odd")] * 2
        trial = Trial(agent, "x", attempts=2)
        with self.assertRaises(Parked) as caught:
            trial.do()
        self.assertEqual((trial.current, len(trial.runs)), ("unsure", 2))
        self.assertEqual((caught.exception.attempt.code, str(caught.exception.__cause__)), ("ValueError", "odd"))
        self.assertEqual(trial.do(), 3, "as resumed by an operator")

        for error, more in ((Rejected("no"), {}), (Failed("no", code="never"), {"not_on": ["never"]})):
            errors[:] = [error]
            trial = Trial(agent, "x", **more)
            self.assertRaises(Parked, trial.do)
            self.assertEqual(len(trial.runs), 1)
        with self.assertRaisesRegex(Parked, 'has no action "y"'):
            Trial(agent, "y").do()
        errors[:] = []
        trial = Trial(agent, "x")
        trial.do()
        with self.assertRaisesRegex(Parked, 'has no undo for "x"'):
            trial.undo()
        self.assertEqual(trial.current, "done")

    def test_cancellation(self):
        agent, seen = Agent("a"), []

        @agent.do("x")
        def x(input, run):
            try:
                run.sleep(100)
            except Cancelled:
                seen.append((run.reason, run.remaining()))
                raise
            run.cancelled.wait(50)
            return run.reason

        @agent.do("async")
        async def later(input, run):
            try:
                await asyncio.gather(asyncio.sleep(100), run.sleep(100))
            except asyncio.CancelledError:
                seen.append((run.reason, run.remaining()))
                raise
            await asyncio.sleep(50)
            return run.reason

        for action in ("x", "async"):
            began, seen[:] = time.monotonic(), []
            trial = Trial(agent, action)
            self.assertEqual(trial.do(), "")
            self.assertAlmostEqual(trial.elapsed, 150, places=3)
            trial = Trial(agent, action, complete_within=99, attempts=2)
            self.assertRaises(Parked, trial.do)
            self.assertEqual([a.outcome for a in trial.runs], ["expired"] * 2)
            with Trial(agent, action) as trial:
                trial.cancel("stopped", after=20).cancel("draining", after=30, nth=2).cancel("notOurs", nth=3)
                trial.do()
            self.assertEqual([(a.outcome, a.code) for a in trial.runs], [("failed", "stopped"), ("returned", ""), ("expired", "expired"), ("done", "")])
            self.assertEqual(seen, [("timeUp", 0.0)] * 2 + [("stopped", 0.0), ("draining", 0.0), ("notOurs", 0.0)])
            self.assertLess(time.monotonic() - began, 10)

        @agent.do("forever")
        def forever(input, run):
            run.cancelled.wait()
            return run.reason

        trial = Trial(agent, "forever").cancel("stopped", after=5)
        self.assertEqual((trial.do(), trial.elapsed), ("stopped", 5.0), "a handler may finish what is not wanted any more")

    def test_async_handlers_that_do_more_than_wait(self):
        agent, background = Agent("a"), []

        @agent.do("x")
        async def x(input, run):
            loop = asyncio.get_running_loop()
            background.append(loop.create_task(asyncio.sleep(10**6)))
            slow = await asyncio.wait_for(loop.run_in_executor(None, lambda: time.sleep(0.05) or "slow"), 5)
            server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            data = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            server.close()
            await server.wait_closed()
            if run.number == 1:
                sys.exit(1)
            return [slow, data.decode()]

        async def main():  # in a test with a loop of its own
            trial = Trial(agent, "x")
            self.assertEqual(trial.do(), ["slow", ""])
            self.assertEqual([a.code for a in trial.runs], ["SystemExit", ""])
            self.assertLess(trial.elapsed, 60)

        asyncio.run(main())
        self.assertTrue(all(task.cancelled() for task in background))


class TestFake(unittest.TestCase):
    def test_it_knows_its_keys(self):
        stock = Fake("stock").fail("reserve", 1).on("reserve", lambda input, run: input * 2)
        with Trial(stock, "reserve", 21) as trial:
            trial.crash("after", nth=2)
            self.assertEqual(trial.do(), 42)
            self.assertEqual((stock.attempts("reserve"), stock.effects("reserve")), (3, 1))
            trial.undo()
        self.assertEqual((stock.effects("reserve"), stock.attempts("reserve", "undo")), (0, 1))
        trial.do()
        self.assertEqual(stock.effects("reserve"), 1)

    def test_a_do_that_comes_after_its_undo_is_refused(self):
        from perdure import Run
        stock = Fake("stock")
        stock.execute(Run(step="s", direction="undo", key="j/s/2", do_key="j/s/1"))
        with self.assertRaises(Rejected):
            stock.execute(Run(step="s", key="j/s/1"))
        self.assertEqual(stock.effects("s"), 0)


class TestServer(unittest.TestCase):
    def test_a_whole_job(self):
        bank, stock = Bank(), Fake("stock").on("reserve", lambda input, run: {"shelf": 7})
        with Server() as server, server.client() as client, client.host(bank.agent, stock):
            job = client.submit({"type": "order", "steps": {
                "reserve": {"agent": "stock", "undo": {}},
                "charge": {"agent": "payments", "after": ["reserve"], "with": {"amount": "${steps.reserve.output.shelf}"}, "undo": {}}}}).job
            self.assertEqual(client.wait(job["id"], timeout=60)["current"], "done")
            self.assertEqual((list(bank.charges.values()), stock.effects("reserve")), ([7], 1))
            client.undo(job["id"])
            self.assertEqual(client.wait(job["id"], timeout=60)["current"], "undone")
            self.assertEqual((bank.charges, stock.effects("reserve")), ({}, 0))
            key = f"{job['id']}/charge/1"
            self.assertEqual(bank.asked[0], (key, 1))
            self.assertEqual(bank.asked[1][:3], (f"{job['id']}/charge/2", 2, key), "keys and numbers, as a Trial has them")

    def test_a_fake_of_a_step_that_no_job_has(self):
        stock = Fake("stock").fail("reserv", 1)
        with self.assertRaisesRegex(AssertionError, "fake stock: no job has a step reserv; the steps are pack, reserve"):
            with Server() as server, server.client() as client, client.host(stock):
                job = client.submit({"type": "order", "steps": {"reserve": {"agent": "stock"}, "pack": {"agent": "stock"}}}).job
                self.assertEqual(client.wait(job["id"], timeout=60)["current"], "done")
        with Server() as server, server.client() as client, client.host(Fake("stock").fail("later", 1)):
            pass  # no job, so there is nothing to compare with

    def test_no_binary(self):
        with mock.patch.dict(os.environ, {"PERDURE_BINARY": "/no/such/perdure"}):
            os.environ.pop("PERDURE_TEST_REQUIRE_SERVER", None)
            self.assertEqual(Server.find(), "")
            with self.assertRaisesRegex(unittest.SkipTest, "set PERDURE_BINARY"):
                Server().__enter__()
            os.environ["PERDURE_TEST_REQUIRE_SERVER"] = "1"
            self.assertRaises(FileNotFoundError, Server().__enter__)

    def test_a_server_that_does_not_start(self):
        if not Server.find():
            self.skipTest("no binary")
        with self.assertRaisesRegex(RuntimeError, "not ready:\n(.|\n)*unknown flag"):
            Server(arguments=["--no-such-flag"]).__enter__()


if __name__ == "__main__":
    unittest.main()
