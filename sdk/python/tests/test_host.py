"""What the cases of sdk/conformance_test.go cannot see: clocks that are set, and an exchange without a network."""

import asyncio
import logging
import re
import threading
import time
import unittest

from perdure import Agent, Failed, NotDrained, Rejected, Unavailable
from perdure.agent import run_of
from perdure.clock import Backoff, Instant, millis, now, parse_time
from perdure.connection import Interrupted
from perdure.host import Host
from perdure.live import Remembered

logging.getLogger("perdure").addHandler(logging.NullHandler())
logging.getLogger("perdure").propagate = False


def a_run(number=1, action="x", remaining=20_000):
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + remaining / 1000))
    return {"job": "job_1", "step": "s", "action": action, "run": number, "direction": "do", "input": None, "key": "k",
            "lockedUntil": until, "completeBy": until, "remainingMs": remaining, "priority": 0}


class Exchange:
    """Answers claims from a list, and accepts everything, unless told otherwise."""

    url = "http://exchange"
    refuses, unwell = None, False  # the answer to reports; whether heartbeats fail

    def __init__(self, *claims):
        self.claims, self.reports, self.calls = list(claims), [], []
        self.mu, self.reported, self.away = threading.Lock(), threading.Event(), False

    def ask(self, method, path, *, body, timeout, safe, until=None):
        import json

        call = json.loads(body)
        with self.mu:
            self.calls.append(path)
            if path.endswith("/claim"):
                runs = self.claims.pop(0) if self.claims else None
            elif path == "/v1/reports":
                if self.away:
                    self.reported.set()
                    raise Unavailable("unavailable", "away", retry_after=0.01)
                self.reports += call["reports"]
                self.reported.set()
                return 200, {"results": [self.refuses or {"accepted": True} for _ in call["reports"]]}
            elif self.unwell:
                raise Unavailable("unavailable", "unwell")
            else:
                return 200, {"runs": [{**r, "stop": False, "remainingMs": 20_000} for r in call["runs"]]}
        if runs is None:
            if until is not None and until.wait(float(call["wait"][:-2]) / 1000):
                raise Interrupted
            runs = []
        return 200, {"runs": runs}

    def interrupt(self):
        pass

    def close(self):
        pass


class Hosts(unittest.TestCase):
    def start(self, exchange, agent, **more):
        host = Host(lambda: exchange, [agent], holder="h", **more)
        host.start()
        return host


class TestHost(Hosts):
    def test_wall_clock_jumps(self):  # F039: the machine slept, and the monotonic clock stood still
        agent, began, ended, jump = Agent("a"), threading.Event(), threading.Event(), [0.0]

        @agent.do("x")
        def x(input, run):
            began.set()
            run.cancelled.wait(10)
            ended.set()
            return run.reason

        exchange = Exchange([a_run()])
        host = self.start(exchange, agent, now=lambda: Instant(time.monotonic(), time.time() + jump[0]))
        self.assertTrue(began.wait(10))
        jump[0] = 60.0
        self.assertTrue(ended.wait(10))
        host.drain(5)
        self.assertEqual(exchange.reports, [], "the time of the run has passed: nothing is said")

    def test_drain_waits_for_reports(self):  # F117
        agent = Agent("a")
        agent.do("x")(lambda input, run: 1)
        exchange = Exchange([a_run()])
        exchange.away = True
        host = self.start(exchange, agent)
        self.assertTrue(exchange.reported.wait(60))
        with self.assertRaisesRegex(NotDrained, "^1 report not answered: agent a, action x, job job_1, step s$") as caught:
            host.drain("300ms")
        self.assertEqual(([r.number for r in caught.exception.unreported], caught.exception.running), ([1], []))

    def test_drain_of_an_idle_host_is_quick(self):
        agent = Agent("a")
        agent.do("x")(lambda input, run: 1)
        host, began = self.start(Exchange(), agent), time.monotonic()
        host.drain(60)
        self.assertLess(time.monotonic() - began, 30)

    def test_what_cannot_be_read_stops_nothing(self):  # F047 the other way round
        agent = Agent("a")
        agent.do("x")(lambda input, run: "fine")
        exchange = Exchange([{"nonsense": 1}, "no run", a_run()])
        host = self.start(exchange, agent)
        self.assertTrue(exchange.reported.wait(60))
        host.drain(5)
        self.assertEqual([r["output"] for r in exchange.reports], ["fine"])

    def test_more_than_there_are_slots_is_given_back(self):
        agent, begun, go = Agent("a", slots=1), threading.Event(), threading.Event()

        @agent.do("x")
        def x(input, run):
            begun.set()
            go.wait(60)

        exchange = Exchange([a_run(1), a_run(2)])
        host = self.start(exchange, agent)
        self.assertTrue(exchange.reported.wait(60) and begun.wait(60))  # a drain gives back what has not begun
        go.set()
        host.drain(60)
        self.assertEqual(sorted((r["run"], r["outcome"]) for r in exchange.reports), [(1, "done"), (2, "returned")])

    def test_a_log_that_blocks(self):  # F127
        blocks, over, agent = threading.Event(), threading.Event(), Agent("a", slots=1)
        self.addCleanup(over.set)

        class Handler(logging.Handler):
            def emit(self, record):
                if "given back" in record.getMessage():
                    blocks.set()
                    over.wait(10)

        handler = Handler()
        logger = logging.getLogger("perdure")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(logger.setLevel, logging.NOTSET)
        agent.do("x")(lambda input, run: blocks.wait(10))
        exchange = Exchange([a_run(1), a_run(2)])  # the second is given back, and told of
        self.start(exchange, agent)
        deadline = time.monotonic() + 60
        while len(exchange.reports) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertEqual(sorted(r["outcome"] for r in exchange.reports), ["done", "returned"])

    def test_wiring(self):
        a = Agent("a")
        self.assertRaisesRegex(ValueError, "a has no handlers", Host, Exchange, [a], holder="h")
        a.undo("x")(lambda input, output, run: None)
        for agents, more in (([], {}), ([a, a], {}), ([a], {"heartbeat": 0.01})):
            self.assertRaises(ValueError, Host, Exchange, agents, holder="h", **more)


class TestLog(Hosts):
    """What an operator reads in the log of an agent."""

    def setUp(self):
        self.records, logger = [], logging.getLogger("perdure")

        class Handler(logging.Handler):
            def emit(handler, record):
                self.records.append(record)

        handler = Handler()
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(logger.setLevel, logging.NOTSET)

    def logged(self, level, pattern):
        """Waits for a line of the log."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if any(r.levelno == level and re.search(pattern, r.getMessage()) for r in list(self.records)):
                return
            time.sleep(0.01)
        self.fail(f"no line fits {pattern!r}: {[r.getMessage() for r in self.records]}")

    def run_one(self, handler, **more):
        agent = Agent("a", slots=4)
        agent.do("x")(handler)
        exchange = Exchange([a_run()])
        for name, value in more.items():
            setattr(exchange, name, value)
        host = self.start(exchange, agent, heartbeat=0.15)
        self.addCleanup(host.drain, 5)
        return exchange

    def test_the_start(self):
        self.run_one(lambda input, run: None)
        self.logged(logging.INFO, "^agent a: claims runs at http://exchange, slots 4$")

    def test_runs_that_do_not_succeed(self):
        run = "agent a, action x, job job_1, step s, run 1, do$"

        def rejects(input, run):
            raise Rejected("no room", code="full")

        def fails(input, run):
            raise Failed("busy", code="busy")

        for handler, level, line in ((rejects, logging.WARNING, r"^run rejected \(full\): no room: " + run),
                                     (fails, logging.INFO, r"^run failed \(busy\): busy: " + run),
                                     (lambda input, run: {"a": {1}}, logging.WARNING, r"^output refused \(outputInvalid\): /a: a value of type set .*: " + run),
                                     (lambda input, run: "x" * (1 << 20), logging.WARNING, r"^output refused \(outputTooLarge\): .*: " + run)):
            with self.subTest(line):
                self.run_one(handler)
                self.logged(level, line)

    def test_a_report_that_is_refused(self):
        self.run_one(lambda input, run: None, refuses={"accepted": False, "reason": "late", "message": "the lock has expired"})
        self.logged(logging.WARNING, r"^report refused \(late\): the lock has expired: agent a, action x, job job_1, step s, run 1, do$")

    def test_heartbeats_that_fail_and_work_again(self):
        over = threading.Event()
        exchange = self.run_one(lambda input, run: over.wait(60), unwell=True)
        self.addCleanup(over.set)
        self.logged(logging.WARNING, "^heartbeat failed; retrying .1 runs.: unwell$")
        before = exchange.calls.count("/v1/heartbeats")
        while exchange.calls.count("/v1/heartbeats") < before + 3:
            time.sleep(0.01)
        self.assertEqual(sum("heartbeat failed" in r.getMessage() for r in self.records), 1, "the same failure is logged once")
        exchange.unwell = False
        self.logged(logging.INFO, "^heartbeats are answered again$")

    def test_reports_that_fail_and_work_again(self):
        exchange = self.run_one(lambda input, run: None, away=True)
        self.logged(logging.WARNING, "^report failed; retrying .1 reports.: away$")
        exchange.away = False
        self.logged(logging.INFO, "^reports are answered again$")


class TestAsyncHandlers(Hosts):
    """What holds for plain handlers holds for async ones too, and for both together."""

    def reported(self, exchange, count):
        deadline = time.monotonic() + 60
        while len(exchange.reports) < count and time.monotonic() < deadline:
            time.sleep(0.005)
        return sorted((r["run"], r["outcome"]) for r in exchange.reports)

    def test_slots_bound_both_kinds(self):
        agent, begun, go = Agent("a", slots=2), threading.Semaphore(0), threading.Event()

        @agent.do("x")
        def x(input, run):
            begun.release()
            go.wait(60)

        @agent.do("y")
        async def y(input, run):
            begun.release()
            while not go.is_set():
                await asyncio.sleep(0.01)

        exchange = Exchange([a_run(1, "x"), a_run(2, "y"), a_run(3, "y"), a_run(4, "x")])
        host = self.start(exchange, agent)
        self.assertEqual(self.reported(exchange, 2), [(3, "returned"), (4, "returned")])
        self.assertTrue(begun.acquire(timeout=60) and begun.acquire(timeout=60))  # a drain gives back what has not begun
        go.set()
        host.drain(60)
        self.assertEqual(self.reported(exchange, 4), [(1, "done"), (2, "done"), (3, "returned"), (4, "returned")])

    def test_an_event_loop_that_is_blocked_delays_nothing_else(self):
        agent, over = Agent("a"), threading.Event()
        agent.do("x")(lambda input, run: "fine")

        @agent.do("y")
        async def y(input, run):
            over.wait(60)  # blocks the loop

        exchange = Exchange([a_run(1, "y"), a_run(2, "y"), a_run(3, "x")])
        with Host(lambda: exchange, [agent], holder="h", heartbeat=0.3, grace=60):
            self.assertEqual(self.reported(exchange, 1), [(3, "done")])
            before = exchange.calls.count("/v1/heartbeats")
            while exchange.calls.count("/v1/heartbeats") < before + 2:
                time.sleep(0.01)
            over.set()
            self.assertEqual(len(self.reported(exchange, 3)), 3)

    def test_the_time_of_a_run_passes_before_its_task_has_begun(self):
        agent, over, began = Agent("a"), threading.Event(), []

        @agent.do("x")
        async def x(input, run):
            over.wait(60)

        @agent.do("y")
        async def y(input, run):
            began.append(run.number)

        exchange = Exchange([a_run(1, "x"), a_run(2, "y", remaining=2000)])
        host = self.start(exchange, agent, heartbeat=None)
        time.sleep(2.2)
        over.set()
        host.drain(60)
        self.assertEqual((began, self.reported(exchange, 1)), ([], [(1, "done")]))

    def test_a_loop_that_was_closed(self):
        agent, loop = Agent("a"), asyncio.new_event_loop()
        loop.close()

        @agent.do("x")
        async def x(input, run):
            pass

        exchange = Exchange([a_run()])
        host = self.start(exchange, agent, loop=loop)
        self.assertEqual(self.reported(exchange, 1), [(1, "returned")])
        host.drain(60)

    def test_a_drain_on_the_loop_of_the_handlers_is_refused(self):
        agent, host = Agent("a"), []

        @agent.do("x")
        async def x(input, run):
            host[0].drain(60)

        exchange = Exchange([a_run()])
        host.append(Host(lambda: exchange, [agent], holder="h"))
        host[0].start()
        self.assertEqual(self.reported(exchange, 1), [(1, "failed")])
        self.assertRegex(exchange.reports[0]["error"]["message"], "would block the event loop")
        host[0].drain(60)

    def test_tasks_that_do_not_end(self):
        agent, began = Agent("a"), threading.Event()

        @agent.do("x")
        async def x(input, run):
            began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)  # until the loop is closed

        host = self.start(Exchange([a_run()]), agent)
        self.assertTrue(began.wait(60))
        with self.assertRaisesRegex(NotDrained, "^1 handler did not return: agent a, action x, job job_1, step s$") as caught:
            host.drain(0.5)
        self.assertEqual([r.number for r in caught.exception.running], [1])
        many = NotDrained([run_of("a", a_run(n)) for n in range(7)], [run_of("a", a_run())])
        self.assertRegex(str(many), "^7 handlers did not return: agent a, .* / 2 more; 1 report not answered: agent a")


class TestClock(unittest.TestCase):
    def test_instants(self):
        at = Instant(10.0, 1000.0)
        self.assertTrue(at.reached(Instant(10.0, 0.0)) and at.reached(Instant(0.0, 1000.0)))
        self.assertFalse(at.reached(Instant(9.9, 999.9)))
        self.assertEqual(at.left(Instant(4.0, 999.0)), 1.0)
        self.assertGreater(now().add(5).left(now()), 4)

    def test_backoff(self):
        backoff = Backoff(0.1, 1.0)
        for bound in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            self.assertTrue(bound / 2 <= backoff.draw() <= bound)
        self.assertGreaterEqual(backoff.draw(at_least=7), 7.5)

    def test_millis(self):
        self.assertEqual([millis(x) for x in (1500, -1, None, "5", 10**30)], [1.5, 0, 0, 0, 10 * 365 * 24 * 3600.0])

    def test_times(self):
        self.assertEqual(parse_time("2026-01-02T03:04:05Z").isoformat(), "2026-01-02T03:04:05+00:00")
        self.assertEqual(parse_time("2026-01-02T03:04:05.123456789+01:00").microsecond, 123456)
        self.assertRaises(ValueError, parse_time, "yesterday")

    def test_memory_is_bounded(self):
        seen = Remembered(10)
        for n in range(100):
            seen.add(("j", "s", n))
        self.assertTrue(("j", "s", 99) in seen and ("j", "s", 89) not in seen)


if __name__ == "__main__":
    unittest.main()
