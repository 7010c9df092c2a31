"""The client and the agents against a real server: PERDURE_SERVER is its URL."""

import os
import threading
import unittest
import uuid

from perdure import Agent, Client, Conflict, Invalid, NotFound, Rejected, at_rest


@unittest.skipUnless(os.environ.get("PERDURE_SERVER"), "PERDURE_SERVER is not set")
class TestServer(unittest.TestCase):
    def setUp(self):
        self.client = Client(author="test")
        self.addCleanup(self.client.close)
        self.name = f"python-{uuid.uuid4().hex[:8]}"
        self.effects = {}
        agent = Agent(self.name)

        @agent.do("charge")
        def charge(input, run):
            if input["amount"] < 0:
                raise Rejected("a negative amount", code="negative", no_effect=True)
            self.effects[run.key] = input["amount"]
            return {"charged": input["amount"]}

        @agent.undo("charge")
        def refund(input, output, run):
            del self.effects[run.do_key]

        host = self.client.host(agent)
        host.start()
        self.addCleanup(host.drain, 10)

    def definition(self, amount=5, **more):
        return {"type": self.name, "input": {"amount": amount}, "onFailure": "undo", "steps": {
            "charge": {"agent": self.name, "with": {"amount": "${input.amount}"}, "undo": {}, "completeWithin": "30s"}}, **more}

    def test_done_undone_redone(self):
        big = 12345678901234567890
        job, created = self.client.submit(self.definition(big, key=self.name, labels={"a": "b"}))
        self.assertTrue(created)
        self.assertFalse(self.client.submit(self.definition(big, key=self.name, labels={"a": "b"})).created)
        job = self.client.wait(self.name, timeout=60)
        self.assertEqual((job["current"], job["steps"]["charge"]["output"]), ("done", {"charged": big}))
        self.assertEqual(list(self.effects.values()), [big])
        self.client.undo(self.name, "changed my mind")
        self.assertEqual(self.client.wait(job["id"], timeout=60)["current"], "undone")
        self.assertEqual(self.effects, {})
        self.client.redo(self.name)
        self.assertEqual(self.client.wait(self.name, timeout=60)["current"], "done")
        step = self.client.step(self.name, "charge")
        self.assertEqual((step["name"], step["job"], step["output"]), ("charge", job["id"], {"charged": big}))
        self.assertFalse(self.client.submit(self.client.definition(self.name)).created)
        self.assertIn("test", [e.get("author") for e in self.client.history(self.name)])
        self.assertEqual([j["key"] for j in self.client.list(type=self.name, labels={"a": "b"})], [self.name])
        self.assertEqual(list(self.client.list(type=self.name, phase="parked")), [])

    def test_rejected(self):
        job = self.client.submit(self.definition(-1)).job
        job = self.client.wait(job["id"], timeout=60)
        self.assertTrue(at_rest(job))
        self.assertEqual((job["current"], job["steps"]["charge"]["lastError"]["code"]), ("undone", "negative"))

    def test_many(self):
        jobs = [{"key": f"{self.name}-{i}", "input": {"amount": i}} for i in range(20)]
        results = self.client.submit_all(jobs + [{"key": "no/slash"}], self.definition())
        self.assertTrue(all(r["created"] for r in results[:-1]))
        self.assertEqual(results[-1]["error"]["code"], "invalid")
        for result in results[:-1]:
            self.assertEqual(self.client.wait(result["id"], timeout=60)["current"], "done")
        self.assertEqual(len(list(self.client.list(type=self.name))), 20)

    def test_refusals(self):
        with self.assertRaises(Invalid) as caught:
            self.client.submit("type: t\nsteps: {a: {agnet: http}}")
        self.assertEqual((caught.exception.code, caught.exception.errors[0]["line"]), ("invalid", 2))
        self.assertIn("line 2, column", str(caught.exception))
        with self.assertRaises(Invalid) as caught:  # of an object there are no lines; all faults are told, the deepest first
            self.client.submit({"type": "no type", "steps": {"a": {"agent": "x", "aftr": []}}})
        self.assertRegex(str(caught.exception), r"^/steps/a/aftr: .*did you mean `after`.*; /type: ")
        self.assertNotIn("line", str(caught.exception))
        self.assertEqual([e.get("line") for e in caught.exception.errors], [None, None])
        with self.assertRaises(Invalid) as caught:
            self.client.submit({"type": "t", "steps": {f"s{i}": {"agent": "x", "after": ["none"]} for i in range(9)}})
        self.assertTrue(str(caught.exception).endswith("; and 4 more"), str(caught.exception))
        self.client.submit(self.definition(key=self.name + "c"))
        self.assertRaises(Conflict, self.client.submit, self.definition(6, key=self.name + "c"))
        self.assertRaises(NotFound, self.client.get, "order/1 %?")
        self.assertRaises(Invalid, self.client.get, "")

    def test_nobody_runs_the_agent(self):
        self.client.submit({"type": self.name, "key": self.name + "n", "steps": {"s": {"agent": self.name + "-nobody"}}})
        with self.assertRaisesRegex(TimeoutError, f"after 0.2 s: step s: no agent {self.name}-nobody has asked for work yet"):
            self.client.wait(self.name + "n", timeout=0.2)

    def test_any_call(self):
        limit = f"job:{self.name}"
        self.assertEqual(self.client.call("PUT", f"/v1/limits/{limit}", {"max": 3})["max"], 3)
        self.assertIsNone(self.client.call("DELETE", f"/v1/limits/{limit}"))

    def test_one_client_many_threads(self):
        keys = [f"{self.name}-t{i}" for i in range(16)]
        threads = [threading.Thread(target=lambda k=k: self.client.submit(self.definition(key=k))) for k in keys]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual({self.client.wait(k, timeout=60)["current"] for k in keys}, {"done"})


if __name__ == "__main__":
    unittest.main()
