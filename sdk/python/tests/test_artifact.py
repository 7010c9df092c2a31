"""Values that are stored as artifacts."""

import json
import threading
import unittest

from perdure import Agent, AsyncRun, Unavailable
from perdure.artifact import OFFLOAD, checked, is_reference, offload, reference
from perdure.errors import Error

from .test_host import Exchange, Hosts, a_run

LARGE = "x" * OFFLOAD


class Store:
    """Keeps what is stored, in memory."""

    def __init__(self):
        self.kept = {}

    def __call__(self, data):
        ref = reference(data)
        self.kept[ref["$artifact"]] = data
        return ref

    def load(self, ref):
        return checked(ref, self.kept[ref["$artifact"]])


class Offload(unittest.TestCase):
    def setUp(self):
        self.store = Store()

    def test_small_values_stay(self):
        for value in (None, 5, "text", {"a": [1, 2, {"b": "c"}]}, "x" * (OFFLOAD - 2)):
            self.assertIs(offload(value, self.store), value)
        self.assertEqual(self.store.kept, {})

    def test_members_are_replaced_as_far_inside_as_possible(self):
        got = offload({"a": {"b": [1, LARGE], "c": 2}, "d": 3}, self.store)
        self.assertEqual((got["a"]["c"], got["d"], got["a"]["b"][0]), (2, 3, 1))
        self.assertEqual(self.store.load(got["a"]["b"][1]), LARGE)
        self.assertEqual(got["a"]["b"][1]["type"], "application/json")

    def test_many_small_members(self):
        inner = {str(i): "y" * 100_000 for i in range(5)}
        self.assertEqual(offload(inner, self.store), inner, "an object stays one while it fits")
        got = offload({"inner": inner}, self.store)
        self.assertEqual(self.store.load(got["inner"]), inner)
        whole = {str(i): "y" * 100_000 for i in range(20)}
        self.assertEqual(self.store.load(offload(whole, self.store)), whole)
        numbers = list(range(100_000))
        self.assertEqual(self.store.load(offload(numbers, self.store)), numbers)

    def test_the_same_value_is_the_same_artifact(self):
        first, second = ({"a": LARGE, "b": {"c": LARGE + "é"}} for _ in range(2))
        self.assertEqual(offload(first, self.store), offload(second, self.store))

    def test_other_bytes_are_refused(self):
        ref = self.store(b'"abc"')
        for data in (b'"abd"', b'"abc" '):
            with self.assertRaises(Unavailable):
                checked(ref, data)
        self.assertEqual(checked({**ref, "type": "text/plain"}, b'"abc"'), b'"abc"')
        self.assertFalse(is_reference({"$artifact": 5, "size": 1}) or is_reference("sha256:") or is_reference(None))


class Outputs(Hosts):
    def agent(self):
        agent = Agent("a")

        @agent.do("x")
        def plain(input, run):
            return {"large": LARGE}

        @agent.do("y")
        async def task(input, run):
            assert isinstance(run, AsyncRun)
            return LARGE

        @agent.undo("x")
        def undo(input, output, run):
            return LARGE

        return agent

    def reports(self, store, *runs):
        exchange = Exchange(list(runs))
        host = self.start(exchange, self.agent(), heartbeat=None, store=store)
        for _ in range(500):
            if len(exchange.reports) == len(runs):
                break
            threading.Event().wait(0.01)
        host.drain(5)
        return {r["run"]: r for r in exchange.reports}

    def test_outputs_are_stored(self):
        store = Store()
        got = self.reports(store, a_run(1), {**a_run(2), "action": "y"}, {**a_run(3), "direction": "undo"})
        self.assertEqual(store.load(got[1]["output"]["large"]), LARGE)
        self.assertEqual(store.load(got[2]["output"]), LARGE)
        self.assertEqual(got[3]["outcome"], "done")
        self.assertEqual(json.dumps(sorted(store.kept)), json.dumps([reference(json.dumps(LARGE).encode())["$artifact"]]))

    def test_a_value_that_cannot_be_stored(self):
        def refuse(data):
            raise Error("noSpace", "there is no room")

        got = self.reports(refuse, a_run(1), {**a_run(2), "action": "y"})
        for run in (1, 2):
            self.assertEqual((got[run]["outcome"], got[run]["error"]["code"]), ("failed", "noSpace"))
            self.assertIn("there is no room", got[run]["error"]["message"])


if __name__ == "__main__":
    unittest.main()
