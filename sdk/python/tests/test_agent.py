"""Agents, runs, and the reports that a handler's answer makes."""

import asyncio
import dataclasses
import functools
import json
import unittest
from typing import Dict, List, Optional

from perdure import Agent, AsyncRun, Cancelled, Failed, NoEffect, Rejected, RetryAfter, Run
from perdure.agent import report_of, run_of
from perdure.connection import to_json

RUN = Run(job="job_1", step="s", number=3, key="k")


@dataclasses.dataclass
class Receipt:
    id: str


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    customer: str
    lines: List[Line]
    rate: float = 0
    note: Optional[str] = None


class TestAgent(unittest.TestCase):
    def test_directions(self):
        agent = Agent("a")
        seen = []

        @agent.do("x")
        def do(input, run):
            return {"doubled": input * 2}

        @agent.undo("x")
        def undo(input, output, run):
            seen.append((input, output, run.do_key))

        self.assertEqual(agent.execute(Run(input=2, action="x")), {"doubled": 4})
        self.assertIsNone(agent.execute(Run(input=2, action="x", direction="undo", output=None, do_key="k")))
        self.assertEqual(seen, [(2, None, "k")])
        self.assertEqual(do(3, RUN), {"doubled": 6}, "a decorated function is still a function")

    def test_what_is_not_there(self):
        agent = Agent("a")
        agent.do("only")(lambda input, run: 1)
        agent.undo("back")(lambda input, output, run: None)
        with self.assertRaises(Rejected) as caught:
            agent.execute(Run(action="only", direction="undo"))
        self.assertEqual((caught.exception.code, caught.exception.no_effect), ("noUndo", True))
        self.assertIn('no undo for "only"', str(caught.exception))
        for run in (Run(action="other"), Run(action="other", direction="undo"), Run(action="back")):
            with self.assertRaises(Rejected) as caught:
                agent.execute(run)
            self.assertEqual((caught.exception.code, caught.exception.no_effect), ("noAction", True))
            self.assertTrue(str(caught.exception).endswith("; it has only"), str(caught.exception))
        many = Agent("many")
        for i in range(12):
            many.do(f"a{i:02}")(lambda input, run: 1)
        with self.assertRaisesRegex(Rejected, "it has a00, .*, a09, 2 more$"):
            many.execute(Run(action="other"))

    def test_wiring(self):
        agent = Agent("a")
        agent.do("x")(print)
        for wrong in (lambda: agent.do("x")(print), lambda: Agent(""), lambda: Agent("a" * 129), lambda: Agent("a", slots=0)):
            self.assertRaises(ValueError, wrong)
        # Names that no definition can have: nobody would ever ask for them.
        for name in ("a b", "-a", "a/b", "ä", "a\n"):
            self.assertRaisesRegex(ValueError, "is no name", Agent, name)

    def test_handlers_that_are_none(self):
        agent = Agent("a")

        async def later(input, run):
            yield 1

        with self.assertRaisesRegex(TypeError, r'the name of the action is missing: @agent.do\("do"\)'):
            @agent.do
            def do(input, run):
                return 1
        for wrong in (lambda: agent.undo(""), lambda: agent.do("x")(3), lambda: agent.do("x")(later)):
            self.assertRaises(TypeError, wrong)
        self.assertFalse(agent.actions)


    def test_handlers_with_the_wrong_number_of_arguments(self):
        class Service:
            def do(self, input, run):
                return input

            def __call__(self, input, output, run):
                return None

        def yields(input, run):
            yield 1

        def keyword(input, run, *, limit):
            return limit

        agent = Agent("a")
        do_handlers = (
            lambda input, run: 1, lambda input, run, more=None: 1, lambda *args: 1, lambda input=None, *rest, limit=3: 1,
            Service().do, functools.partial(lambda limit, input, run: 1, 3), functools.partial(keyword, limit=3))
        for i, f in enumerate(do_handlers):
            agent.do(f"right{i}")(f)
            agent.execute(Run(action=f"right{i}", input=2))
        agent.do("unknown signature")(max)
        for i, f in enumerate((lambda input, output, run: 1, lambda *args: 1, Service(), lambda input, output, run, more=1: 1)):
            agent.undo(f"right{i}")(f)
            agent.execute(Run(action=f"right{i}", direction="undo"))
        before = agent.actions
        for f in (lambda: 1, lambda input: 1, lambda input, output, run: 1, lambda run, *, input: 1, keyword, Service.do, Service(),
                  functools.partial(lambda input, run: 1, 3), functools.partial(keyword)):
            with self.assertRaisesRegex(TypeError, r"cannot be called with \(input, run\), as do calls it: "):
                agent.do("wrong")(f)
        for f in (lambda: 1, lambda input, run: 1, lambda input, output, run, more: 1, Service().do):
            with self.assertRaisesRegex(TypeError, r"cannot be called with \(input, output, run\), as undo calls it: "):
                agent.undo("wrong")(f)
        with self.assertRaisesRegex(TypeError, "cannot yield"):
            agent.do("wrong")(yields)
        self.assertEqual(agent.actions, before)


    def test_async_handlers(self):
        class Later:
            async def __call__(self, input, run):
                return input

        async def later(limit, input, run):
            return input

        agent = Agent("a")
        for i, f in enumerate((Later(), functools.partial(Later()), functools.partial(later, 3), Later().__call__)):
            agent.do(f"x{i}")(f)
            self.assertTrue(agent.is_async(f"x{i}", "do") and agent.has_async)
            self.assertEqual(asyncio.run(agent.execute(AsyncRun(action=f"x{i}", input=i))), i)
        with self.assertRaisesRegex(TypeError, r"cannot be called with \(input, run\)"):
            agent.do("wrong")(later)

        @agent.undo("x0")
        def undo(input, output, run):
            return Later()(input, run)

        self.assertFalse(agent.is_async("x0", "undo") or agent.is_async("nothing", "do"))
        with self.assertRaisesRegex(TypeError, 'of "x0" is a plain function that returned a coroutine: make it `async def`'):
            agent.execute(Run(action="x0", direction="undo"))

    def test_inputs_are_read_into_the_types_of_the_handler(self):
        agent, seen = Agent("a"), []

        @agent.do("x")
        def x(input: Order, run):
            seen.append(input)
            return Receipt(id=input.lines[0].sku)

        @agent.undo("x")
        async def undo(input: Order, output: Optional[Receipt], run):
            seen.append((input.customer, output))

        good = {"customer": "ada", "lines": [{"sku": "tea", "count": 2}], "rate": 1}
        self.assertEqual(json.loads(to_json(agent.execute(Run(action="x", input=good)))), {"id": "tea"})
        self.assertEqual(seen.pop(), Order("ada", [Line("tea", 2)], 1, None))
        for change, words in (({"customer": 3}, "customer: not a text"), ({"lines": {}}, "lines: not a list"),
                              ({"lines": [{"sku": "tea", "count": True}]}, r"lines\[0\].count: not an integer"),
                              ({"lines": [{"count": 1}]}, r"lines\[0\].sku: missing"), ({"rate": "1"}, "rate: not a number"),
                              ({"note": 1}, "note: not a text"), ({"custmer": "x"}, "custmer: unknown field; Order has customer, lines")):
            with self.assertRaisesRegex(Rejected, words) as caught:
                agent.execute(Run(action="x", input={**good, **change}))
            self.assertEqual((caught.exception.code, caught.exception.no_effect), ("input", True))
        with self.assertRaisesRegex(Rejected, "^not an object$"):
            agent.execute(Run(action="x", input=3))
        with self.assertRaisesRegex(Rejected, "^the step has no `with`; Order needs customer, lines$"):
            agent.execute(Run(action="x", input=None))
        self.assertEqual(seen, [])
        for output, want in (({"id": "tea", "of": "a newer version"}, Receipt("tea")), (None, None)):
            asyncio.run(agent.execute(AsyncRun(action="x", direction="undo", input={**good, "new": 1}, output=output)))
            self.assertEqual(seen.pop(), ("ada", want))
        with self.assertRaises(Rejected) as caught:
            agent.execute(AsyncRun(action="x", direction="undo", input=good, output={"id": 3}))
        self.assertEqual(caught.exception.code, "output")

    def test_inputs_are_read_into_models_of_pydantic(self):
        class Model:  # as version 2 has them
            def __init__(self, **values):
                self.values = values

            @classmethod
            def model_validate(cls, value):
                if "sku" not in value:
                    raise ValueError("sku: field required")
                return cls(**value)

            def model_dump(self, mode):
                return {"mode": mode, **self.values}

        class Older:  # as version 1 has them
            def __init__(self, **values):
                self.values = values

            @classmethod
            def parse_obj(cls, value):
                return cls(**value)

            def json(self):
                return json.dumps(self.values)

        agent = Agent("a")

        def same(input, run):
            return input

        for model, want in ((Model, {"mode": "json", "sku": "tea"}), (Older, {"sku": "tea"})):
            same.__annotations__ = {"input": model}
            agent.do(model.__name__)(functools.partial(same))
            self.assertEqual(json.loads(to_json(agent.execute(Run(action=model.__name__, input={"sku": "tea"})))), want)
        with self.assertRaisesRegex(Rejected, "^sku: field required$"):
            agent.execute(Run(action="Model", input={}))

    def test_annotations_that_are_not_read(self):
        agent = Agent("a")

        @agent.do("x")
        def x(input: "Nowhere", run: "Run"):  # noqa: F821: it is imported for type checkers alone, say
            return input

        @agent.do("y")
        def y(input: Dict[str, int], run):
            return input

        for action in "xy":
            self.assertEqual(agent.execute(Run(action=action, input={"a": "b"})), {"a": "b"})

    def test_async_run(self):
        async def handler(run):
            await run.sleep(0)
            run.check()
            run.cancel("stopped")
            self.assertRaises(Cancelled, run.check)
            with self.assertRaises(asyncio.CancelledError):
                await run.sleep(60)

        asyncio.run(handler(AsyncRun()))

    def test_a_cancellation_of_another_origin_is_a_failure(self):
        run = AsyncRun(job="j", step="s")
        report = report_of(run, None, asyncio.CancelledError())
        self.assertEqual((report["outcome"], report["error"]["code"]), ("failed", "CancelledError"))
        run.cancel("stopped")
        report = report_of(run, None, asyncio.CancelledError())
        self.assertEqual((report["outcome"], report["error"]), ("failed", {"message": "stopped", "code": "stopped"}))
        draining = AsyncRun(job="j", step="s")
        draining.cancel("draining")
        self.assertEqual(report_of(draining, None, asyncio.CancelledError())["outcome"], "returned")


class TestRun(unittest.TestCase):
    def test_of_a_claim(self):
        run = run_of("a", {"job": "j", "step": "s", "action": "x", "run": 2, "direction": "undo", "input": 1, "output": None,
                           "key": "k", "doKey": "d", "completeBy": "2026-11-21T04:49:20.118583999Z", "remainingMs": 1})
        self.assertEqual((run.number, run.direction, run.do_key, run.complete_by.microsecond), (2, "undo", "d", 118583))
        self.assertEqual(run.headers()["Perdure-Do-Key"], "d")
        for field in ("input", "key", "completeBy"):
            raw = {"job": "j", "step": "s", "action": "x", "run": 2, "direction": "do", "input": 1, "key": "k",
                   "completeBy": "2026-11-21T04:49:20Z"}
            del raw[field]
            self.assertRaises(KeyError, run_of, "a", raw)

    def test_cancel(self):
        run = Run()
        self.assertGreater(run.remaining(), 0)
        run.check()
        run.cancel("stopped")
        run.cancel("timeUp")  # the first reason stands
        self.assertEqual((run.remaining(), run.reason), (0, "stopped"))
        for call in (run.check, lambda: run.sleep(60)):
            self.assertRaises(Cancelled, call)
        self.assertFalse(issubclass(Cancelled, Exception), "`except Exception` must not swallow it")

    def test_progress(self):
        sent = []
        run = Run(_send=sent.append)
        run.progress({"done": 1})
        self.assertEqual(sent, [b'{"done":1}'])
        self.assertRaises(ValueError, run.progress, "x" * 4097)
        self.assertRaises(ValueError, run.progress, float("inf"))


class TestReports(unittest.TestCase):
    def report(self, output=None, error=None, reason=""):
        run = Run(job="job_1", step="s", number=3)
        if reason:
            run.cancel(reason)
        report = report_of(run, output, error)
        self.assertEqual((report.pop("job"), report.pop("step"), report.pop("run")), ("job_1", "s", 3))
        return json.loads(json.dumps(report, default=dataclasses.asdict))

    def test_done(self):
        self.assertEqual(self.report(), {"outcome": "done"})
        self.assertEqual(self.report(Receipt("r")), {"outcome": "done", "output": {"id": "r"}})
        self.assertEqual(self.report(2**70), {"outcome": "done", "output": 2**70})
        self.assertEqual(self.report({"late": 1}, reason="stopped")["outcome"], "done", "what is done is done")

    def test_outputs_that_are_none(self):  # F047
        cycle = []
        cycle.append(cycle)
        for output in (float("nan"), object(), {1, 2}, "\ud800", cycle):
            self.assertEqual(self.report(output)["error"]["code"], "outputInvalid")
        self.assertEqual(self.report("x" * (1 << 20))["error"]["code"], "outputTooLarge")

    def test_failures(self):
        for error, want in (
            (Failed("m", code="c"), {"outcome": "failed", "error": {"message": "m", "code": "c"}}),
            (Rejected("m"), {"outcome": "rejected", "error": {"message": "m"}}),
            (NoEffect("m"), {"outcome": "failed", "error": {"message": "m"}, "effect": "none"}),
            (RetryAfter(90, "m"), {"outcome": "failed", "error": {"message": "m", "retryAfter": "90000ms"}}),
            (RetryAfter(10**9, "m"), {"outcome": "failed", "error": {"message": "m", "retryAfter": "86400000ms"}}),
            (KeyError("k"), {"outcome": "failed", "error": {"message": "'k'", "code": "KeyError"}}),
            (ValueError(), {"outcome": "failed", "error": {"message": "ValueError", "code": "ValueError"}}),
            (ValueError("a\x00b\ud800"), {"outcome": "failed", "error": {"message": "a\ufffdb?", "code": "ValueError"}}),
        ):
            self.assertEqual(self.report(error=error), want)

    def test_errors_that_are_made_wrongly(self):
        self.assertEqual(RetryAfter("1m30s", "m").retry_after, 90)
        self.assertEqual([Failed("m", retry_after=t).retry_after for t in ("500ms", "1.5s", "1d", 2)], [0.5, 1.5, 86400, 2])
        self.assertTrue(NoEffect("m", no_effect=True).no_effect)
        for wrong, kind, words in (
            (lambda: RetryAfter("busy", 60), TypeError, r"RetryAfter\('busy', 60\): the time comes first, then the message: RetryAfter\(60, \"busy\"\)"),
            (lambda: RetryAfter("busy", "60"), ValueError, "after: 'busy' is no length of time"),
            (lambda: Failed("m", retry_after="soon"), ValueError, "retry_after: 'soon' is no length of time"),
            (lambda: Failed("m", retry_after=None), TypeError, "retry_after: None is no length of time"),
            (lambda: NoEffect("m", no_effect=False), ValueError, "contradicts itself: raise Failed"),
            (lambda: Failed("m", code=404), TypeError, 'code: 404 is no text: write code="404"'),
        ):
            with self.assertRaisesRegex(kind, words):
                wrong()

    def test_cut_short(self):
        self.assertEqual(self.report(error=Cancelled("stopped"), reason="stopped")["error"]["code"], "stopped")
        cut = self.report(error=Cancelled("draining"), reason="draining")
        self.assertEqual((cut["outcome"], cut["effect"]), ("returned", "unknown"))
        cut = self.report(error=NoEffect("nothing yet"), reason="draining")
        self.assertEqual((cut["outcome"], cut.get("effect")), ("returned", None))


if __name__ == "__main__":
    unittest.main()
