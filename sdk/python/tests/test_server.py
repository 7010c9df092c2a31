"""The client and the agents against a real server: PERDURE_SERVER is its URL."""

import asyncio
import datetime
import os
import threading
import time
import unittest
import uuid

from perdure import Agent, AsyncClient, Client, Conflict, Invalid, NotFound, Rejected, at_rest


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

        @agent.do("broken")
        def broken(input, run):
            if input != "mended":
                raise Rejected("it is broken", code="broken", no_effect=True)
            return input

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
        with self.assertRaisesRegex(Invalid, "^key: "):
            self.client.submit(self.definition(), key="a/b")
        self.assertRaises(NotFound, self.client.get, "order/1 %?")
        self.assertRaises(Invalid, self.client.get, "")

    def test_nobody_runs_the_agent(self):
        self.client.submit({"type": self.name, "key": self.name + "n", "steps": {"s": {"agent": self.name + "-nobody"}}})
        with self.assertRaisesRegex(TimeoutError, f"after 0.2 s: step s: no agent {self.name}-nobody has claimed runs here"):
            self.client.wait(self.name + "n", timeout=0.2)

    def test_any_call(self):
        limit = f"job:{self.name}"
        self.assertEqual(self.client.call("PUT", f"/v1/limits/{limit}", {"max": 3})["max"], 3)
        self.assertIsNone(self.client.call("DELETE", f"/v1/limits/{limit}"))

    def parked(self, suffix=""):
        """A job with a parked step, and one after it."""
        job = self.client.submit({"type": self.name, "key": self.name + suffix, "steps": {
            "broken": {"agent": self.name, "with": "broken"},
            "charge": {"agent": self.name, "with": {"amount": 1}, "undo": {}, "after": ["broken"]}}}).job
        job = self.client.wait(job["id"], timeout=60)
        self.assertEqual((job["phase"], job["steps"]["broken"]["phase"]), ("parked", "parked"))
        return job["id"]

    def done(self, ref):
        job = self.client.wait(ref, timeout=60)
        self.assertEqual((job["phase"], job["current"]), ("settled", "done"), job)
        return job

    def test_acts_on_steps(self):
        ref = self.parked("-resumed")
        self.client.resume_step(ref, "broken", "mended by hand", input="mended", new_key=True, author="Zoë")
        self.assertEqual(self.done(ref)["steps"]["broken"]["output"], "mended")
        self.assertIn(("Zoë", "broken"), [(e.get("author"), e.get("step")) for e in self.client.history(ref)])

        ref = self.parked("-edited")
        self.client.edit(ref, "broken", "", input="mended")
        self.client.resume(ref)
        self.done(ref)

        ref = self.parked("-settled")
        self.client.settle(ref, "broken", "done", "done by hand", output={"by": "hand"})
        self.assertEqual(self.done(ref)["steps"]["broken"]["output"], {"by": "hand"})

        ref = self.parked("-skipped")
        self.client.skip(ref, "broken")
        self.assertTrue(self.done(ref)["steps"]["broken"]["skipped"])

        ref = self.parked("-given-up")
        self.assertEqual(self.client.give_up(ref, "not worth it", author="bo")["givenUp"], {"by": "bo", "reason": "not worth it"})
        self.assertRaises(Invalid, self.client.undo, ref, author="a\nb")
        self.assertRaises(Invalid, self.client.skip, ref, "")
        self.assertRaises(Invalid, self.client.settle, ref, "charge", "undone", output=1)

    def test_signals_and_approvals(self):
        key = self.name + "-paid"
        definition = {"type": self.name, "steps": {
            "paid": {"agent": "signal", "with": {"name": "payment.completed", "key": key}},
            "ok": {"agent": "approval", "with": {"message": "Ship?"}, "after": ["paid"]}}}
        first = self.client.send_signal("payment.completed", key, id="evt_1", data={"amount": 7}, keep="1h")
        self.assertEqual((first["id"], first["matched"]), ("evt_1", []))
        self.assertTrue(self.client.send_signal("payment.completed", key, id="evt_1")["repeated"])
        ref = self.client.submit(definition).job["id"]  # it receives what was kept
        self.assertEqual(self.client.step(ref, "paid")["output"]["data"], {"amount": 7})
        self.client.approve(ref, "ok", "seen", data={"by": "sea"}, author="Zoë")
        self.assertEqual(self.done(ref)["steps"]["ok"]["output"]["data"], {"by": "sea"})

        ref = self.client.submit({**definition, "onFailure": "undo"}).job["id"]
        self.assertEqual(self.client.send_signal("payment.completed", key, job=ref)["matched"], [f"{ref}/paid"])
        self.client.reject(ref, "ok", "out of stock")
        job = self.client.wait(ref, timeout=60)
        self.assertEqual((job["current"], job["steps"]["ok"]["lastError"]["code"]), ("undone", "rejected"))

    def test_alerts(self):
        job = self.client.submit({"type": self.name, "onFailure": [{"alert": "ops"}, "park"], "steps": {
            "broken": {"agent": self.name, "with": "broken"}}}).job
        self.client.wait(job["id"], timeout=60)
        alerts = list(self.client.alerts(job=job["id"]))
        self.assertTrue(alerts and all(a["job"] == job["id"] for a in alerts), alerts)
        parked = [a for a in alerts if a["kind"] == "parked"]
        others = [a for a in alerts if a["kind"] != "parked"]
        self.assertRaises(Conflict, self.client.close_alert, parked[0]["id"])
        closed = self.client.close_alert(others[0]["id"], "seen", author="anna")
        self.assertEqual(closed["closedBy"], "anna: seen")
        self.assertNotIn(closed["id"], [a["id"] for a in self.client.alerts(job=job["id"])])
        self.assertIn(closed["id"], [a["id"] for a in self.client.list_alerts(job=job["id"], closed=True, limit=500)["items"]])
        self.assertRaises(NotFound, self.client.close_alert, 10**12)

    def test_schedules_and_definitions(self):
        definition = {"type": self.name, "steps": {"a": {"agent": self.name}}}
        first = self.client.put_definition(self.name, definition)
        second = self.client.put_definition(self.name, f"type: {self.name}\nsteps: {{b: {{agent: {self.name}}}}}")
        again = self.client.put_definition(self.name, definition, author="anna")
        self.assertEqual([first["version"], second["version"], second["current"], again["version"]], [1, 2, 1, 1])
        self.assertEqual(self.client.promote_definition(self.name, 2)["current"], 2)
        self.assertEqual(self.client.get_definition(f"{self.name}@1")["definition"]["type"], self.name)
        self.assertIn(self.name, [d["name"] for d in self.client.definitions()])

        settings = {"cron": "30 2 * * *", "timezone": "Europe/Warsaw", "job": {"definition": self.name}}
        self.assertEqual(self.client.put_schedule(self.name, settings, dry_run=True)["name"], self.name)
        self.assertRaises(NotFound, self.client.get_schedule, self.name)
        self.assertEqual(self.client.put_schedule(self.name, settings)["version"], 1)
        self.assertEqual(self.client.pause_schedule(self.name, "the warehouse moves")["state"], "paused")
        self.assertIn(self.name, [s["name"] for s in self.client.schedules(state="paused")])
        dry = self.client.backfill_schedule(self.name, "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", parallel=2, dry_run=True)
        self.assertEqual(dry["first"], ["2026-01-01T01:30:00Z", "2026-01-02T01:30:00Z"])
        fired = self.client.trigger_schedule(self.name, "2026-01-01T01:30:00Z")
        self.assertEqual((fired["created"], fired.get("unscheduled")), (True, None))
        self.assertEqual(self.client.trigger_schedule(self.name, "2026-01-01T01:30:00Z")["job"], fired["job"])
        self.assertEqual([f["job"] for f in self.client.firings(self.name)], [fired["job"]])
        self.assertEqual(self.client.resume_schedule(self.name)["state"], "active")
        self.assertEqual(len(self.client.next_times(self.name, 3)), 3)
        self.assertRaises(Conflict, self.client.delete_definition, self.name)
        self.client.delete_schedule(self.name)
        self.client.delete_definition(self.name, author="anna")
        self.assertRaises(NotFound, self.client.get_definition, self.name)

    def test_limits_agents_nodes(self):
        limit = self.client.put_limit(f"job:{self.name}", 3)
        self.assertEqual((limit["name"], limit["max"]), (f"job:{self.name}", 3))
        own = self.client.put_limit(self.name, per_key=2)
        self.assertEqual((own.get("max"), own["perKey"]["max"]), (None, 2))
        self.assertEqual(self.client.get_limit(self.name)["name"], self.name)
        self.assertTrue({self.name, f"job:{self.name}"} <= {x["name"] for x in self.client.list_limits()})
        for name in (self.name, f"job:{self.name}"):
            self.client.delete_limit(name, author="anna")
            self.assertRaises(NotFound, self.client.get_limit, name)
        self.assertRaises(Invalid, self.client.put_limit, self.name)
        self.assertEqual(self.client.put_agent(self.name, "10m")["ageing"], "10m")
        self.assertEqual(self.client.put_agent(self.name, datetime.timedelta(minutes=2))["ageing"], "2m")
        self.assertEqual(self.client.get_agent(self.name)["name"], self.name)
        self.assertIn(self.name, [a["name"] for a in self.client.list_agents()])
        self.assertRaises(NotFound, self.client.get_agent, self.name + "-nobody")
        self.assertIn("alive", [n["state"] for n in self.client.list_nodes()])
        self.assertIn("properties", self.client.job_schema())
        self.assertTrue(self.client.ready())

    def test_pages(self):
        self.client.submit_all([{"key": f"{self.name}-{i}"} for i in range(5)], self.definition())
        seen, cursor = [], ""
        while True:
            page = self.client.list_jobs(type=self.name, limit=2, cursor=cursor)
            self.assertLessEqual(len(page["items"]), 2)
            seen += [j["key"] for j in page["items"]]
            cursor = page.get("nextCursor", "")
            if not cursor:
                break
        self.assertEqual(sorted(seen), [f"{self.name}-{i}" for i in range(5)])
        ref = self.parked()
        first = self.client.list_history(ref, limit=1)
        self.assertEqual(len(first["items"]), 1)

    def test_large_values(self):
        client = Client(author="test", offload=True)
        self.addCleanup(client.close)
        agent, text = Agent(self.name + "-large"), "é" * (300 << 10)

        @agent.do("turn")
        def turn(input, run):
            return {"turned": client.load_artifact(input["text"])[::-1] + "!", "size": input["size"]}

        with client.host(agent, grace=10):
            definition = {"type": self.name, "input": {"text": text, "size": len(text)}, "steps": {
                "turn": {"agent": agent.name, "with": {"text": "${input.text}", "size": "${input.size}"}, "completeWithin": "1m"}}}
            self.assertTrue(client.submit(definition, key=self.name).created)
            self.assertFalse(client.submit(definition, key=self.name).created)
            output = client.wait(self.name, timeout=60)["steps"]["turn"]["output"]
            self.assertEqual(output["size"], len(text))
            self.assertEqual(client.load_artifact(output["turned"]), text + "!")
            self.assertEqual(client.load_artifact(5), 5)
            many = client.submit_all([{"key": self.name + "-2", "input": {"text": text, "size": 1}}], definition)
            self.assertTrue(many[0]["created"])
            self.assertEqual(client.wait(self.name + "-2", timeout=60)["current"], "done")
        with self.assertRaises(NotFound):
            client.load_artifact({"$artifact": "sha256:" + "0" * 64, "size": 1, "type": "application/json"})

    def test_key_of_a_text(self):
        text = f"type: {self.name}\nsteps: {{broken: {{agent: {self.name}, with: mended}}}}"
        first = self.client.submit(text, key=self.name + "-text")
        again = self.client.submit(text, key=self.name + "-text")
        self.assertEqual((first.created, again.created, again.job["id"]), (True, False, first.job["id"]))
        self.assertRaises(Invalid, self.client.submit, text, key=" no")

    def test_follow(self):
        ref = self.client.submit(self.definition()).job["id"]
        seen = list(self.client.follow(ref))
        self.assertTrue("charge" in seen[0]["steps"] and at_rest(seen[-1]), seen)
        self.assertEqual(seen[-1]["current"], "done")
        self.assertRaises(NotFound, next, self.client.follow(self.name + "-nothing"))

    def test_async_client(self):
        agent = Agent(self.name + "-async")
        loops = []

        @agent.do("sum")
        async def add(input, run):
            await asyncio.sleep(0.01)
            loops.append(asyncio.get_running_loop())
            return sum(input)

        @agent.do("plain")
        def plain(input, run):
            return threading.current_thread() is not threading.main_thread()

        async def main():
            async with AsyncClient(author="test", calls=4) as client, client.host(agent, grace=10):
                definition = {"type": self.name, "steps": {
                    "sum": {"agent": agent.name, "with": [1, 2, 3]}, "plain": {"agent": agent.name, "after": ["sum"]}}}
                keys = [f"{self.name}-async-{i}" for i in range(20)]
                await asyncio.gather(*(client.submit(definition, key=key) for key in keys))
                jobs = await asyncio.gather(*(client.wait(key, timeout=60) for key in keys))
                self.assertEqual([(j["current"], j["steps"]["sum"]["output"], j["steps"]["plain"]["output"]) for j in jobs],
                                 [("done", 6, True)] * 20)
                self.assertEqual(len([j async for j in client.list(type=self.name)]), 20)
                self.assertEqual([j["phase"] async for j in client.follow(keys[0])], ["settled"])
                self.assertEqual(set(loops), {asyncio.get_running_loop()})
                with self.assertRaises(NotFound):
                    await client.get(self.name + "-nothing")
                # What is cancelled ends at once, and its thread is free again.
                lonely = (await client.submit({"type": self.name, "steps": {"s": {"agent": self.name + "-nobody"}}})).job["id"]
                began = time.monotonic()
                for endless in [lambda: client.wait(lonely), lambda: last(client.follow(lonely))] * 4:
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(endless(), 0.2)
                    self.assertTrue(await client.ready())
                self.assertLess(time.monotonic() - began, 30)

        async def last(jobs):
            async for job in jobs:
                pass
            return job

        asyncio.run(main())

    def test_async_handlers_of_a_plain_client(self):
        agent, began, ended = Agent(self.name + "-loop"), threading.Event(), []

        @agent.do("wait")
        async def wait(input, run):
            began.set()
            try:
                await run.sleep(3600)
            except asyncio.CancelledError:
                ended.append(run.reason)
                raise

        ref = self.client.submit({"type": self.name, "steps": {"wait": {"agent": agent.name}}}).job["id"]
        with self.client.host(agent, grace=2):
            self.assertTrue(began.wait(60))
        self.assertEqual(ended, ["draining"])
        self.assertEqual(self.client.step(ref, "wait")["outcome"], "returned")

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
