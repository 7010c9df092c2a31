"""Prints what the package uses of the API, as JSON, for sdk/openapi_test.go.

It calls every method of Client with every argument, and carries an agent through every kind of run, without a server.
What is sent is recorded, and which fields of the answers are read. A method or argument that it leaves out is an error.
"""

import inspect
import json
import sys
import threading
import time
import urllib.parse

from perdure import Agent, Client, Failed, Rejected, client as client_module
from perdure.artifact import reference
from perdure.client import UNSET
from perdure.connection import Interrupted
from perdure.errors import refusal
from perdure.host import NOT_OURS, Host

calls, reads = [], {}


class Read(dict):
    """An answer that records which of its fields are read."""

    def __init__(self, schema, **fields):
        super().__init__(fields)
        self.schema = schema

    def __getitem__(self, field):
        reads.setdefault(self.schema, set()).add(field)
        return super().__getitem__(field)

    def get(self, field, default=None):
        reads.setdefault(self.schema, set()).add(field)
        return super().get(field, default)


def record(method, path, query="", headers=None, body=None, media=""):
    calls.append({"method": method, "path": path, "query": urllib.parse.parse_qs(query), "headers": sorted(headers or {}),
                  "media": media if body is not None else "",
                  "body": json.loads(body) if body is not None and media == "application/json" else None})


class Recorder:
    """A connection without a server."""

    def __init__(self, url, headers, certificates=None):
        pass

    def ask(self, method, path, *, query="", body=None, media="application/json", headers=None, timeout=0, safe=False, until=None, size=None):
        record(method, path, query, headers, body, media)
        if size is not None:
            return 200, b"1"
        last = path.rsplit("/", 1)[-1]
        if last == "submit":
            return 200, Read("BatchAnswer", results=[{} for _ in json.loads(body)["jobs"]])
        lists = {"/v1/agents": "ListAgent", "/v1/limits": "ListLimit", "/v1/nodes": "ListNode", "/v1/schedules/s/next": "ListTime"}
        return 200, Read(lists[path], items=[]) if path in lists else {"items": [], "phase": "settled"}

    def events(self, path, *, silence, until=None):
        record("GET", path)
        yield "rest", b"{}"

    def interrupt(self):
        pass

    def close(self):
        pass


def all_of_the_client():
    client_module.Connection = Recorder
    client = Client("http://server")
    given = {}

    def call(method, *args, **kwargs):
        f = getattr(client, method)
        given.setdefault(method, set()).update(inspect.signature(f).bind(*args, **kwargs).arguments)
        result = f(*args, **kwargs)
        if inspect.isgenerator(result):
            list(result)

    definition = {"type": "t", "steps": {"s": {"agent": "a"}}}
    call("submit", definition, key="k", traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    call("submit", "type: t", key="k")
    call("submit_all", [{"key": "k", "input": 1, "priority": 9, "labels": {"a": "b"}, "startAt": "2031-01-01T08:00:00Z"}], definition, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    call("submit_all", [definition])
    large = Client("http://server", offload=True)
    large.submit({**definition, "input": {"a": "x" * (256 << 10)}})
    call("load_artifact", reference(b"1"))
    call("get", "j")
    call("step", "j", "s")
    call("definition", "j")
    call("wait", "j", timeout=5)
    call("follow", "j")
    filters = {"phase": "parked", "type": "t", "current": "done", "desired": "done", "key": "k", "labels": {"a": "b"},
               "agent": "a", "step": "s", "reason": "limit", "error": "503", "alert": "parked", "parent": "album-7/resize", "q": "order-",
               "since": "24h", "until": "1h", "oldest": True}
    call("list", **filters)
    call("list_jobs", **filters, count=True, summary=True, limit=10, cursor="c")
    call("history", "j")
    call("list_history", "j", limit=10, cursor="c")
    for act in ("undo", "redo", "resume", "give_up"):
        call(act, "j", "reason", author="anna")
    for act in ("resume_step", "edit"):
        call(act, "j", "s", "reason", input=None, new_key=True, author="anna")
    for state in ("done", "undone"):
        call("settle", "j", "s", state, "reason", output={} if state == "done" else UNSET, author="anna")
    call("skip", "j", "s", "reason", author="anna")
    call("stop", "j", "s", "reason", author="anna")
    call("approve", "j", "s", "reason", data={"a": 1}, author="anna")
    call("reject", "j", "s", "reason", author="anna")
    call("send_signal", "paid", "p1", id="evt_1", data={"a": 1}, keep="2h", job="j", author="anna")
    call("send_signal", "paid", "p1", id="evt_1", data={"a": 1}, keep=7200, to_all=True, author="anna")
    call("alerts", job="j", closed=True)
    call("list_alerts", job="j", closed=True, limit=10, cursor="c")
    call("close_alert", 12, "reason", author="anna")
    call("list_limits")
    call("get_limit", "job:t")
    call("put_limit", "own", 10, rate="5/s", burst=9, per_key={"max": 2, "rate": "1/s", "burst": 4}, keys={"a": {"max": 3}}, order="submitted", author="anna")
    call("delete_limit", "own", author="anna")
    call("list_agents")
    call("get_agent", "a")
    call("put_agent", "a", "10m", patience="2m", fair_by="job.labels.customer", weights={"gold": 4}, author="anna")
    call("delete_agent", "a", author="anna")
    schedule = {"cron": "0 0 * * *", "timezone": "UTC", "every": "1h", "at": ["2031-01-01T08:00:00Z"], "overlap": "skip",
                "job": {"definition": "order", "input": 1, "priority": 3, "labels": {"a": "b"}}, "catchUp": {"within": "2h", "max": 3}, "jitter": "5m",
                "pauseAfter": 3, "from": "2031-01-01T08:00:00Z", "until": "2032-01-01T08:00:00Z", "paused": True}
    call("schedules", state="paused")
    call("list_schedules", state="paused", limit=10, cursor="c")
    call("get_schedule", "s")
    for overlap in ("skip", "queue", "allow", "replace"):
        call("put_schedule", "s", {**schedule, "overlap": overlap}, dry_run=overlap == "skip", author="anna")
    call("delete_schedule", "s", author="anna")
    call("pause_schedule", "s", "reason", author="anna")
    call("resume_schedule", "s", catch_up=True, author="anna")
    call("trigger_schedule", "s", "2031-01-01T08:00:00Z", author="anna")
    call("backfill_schedule", "s", "2031-01-01T08:00:00Z", "2031-01-02T08:00:00Z", parallel=2, dry_run=True, again=True, author="anna")
    call("next_times", "s", 20)
    call("firings", "s")
    call("list_firings", "s", limit=10, cursor="c")
    call("definitions")
    call("list_definitions", limit=10, cursor="c")
    call("get_definition", "order@7")
    call("put_definition", "order", definition, author="anna")
    call("put_definition", "order", "type: t")
    call("promote_definition", "order", 7, author="anna")
    call("delete_definition", "order@6", author="anna")
    call("list_nodes")
    call("job_schema")
    call("ready")

    without = {"call", "close", "host", "serve"}  # of no operation of their own
    for name, f in inspect.getmembers(client, inspect.ismethod):
        if not name.startswith("_") and name not in without:
            missing = set(inspect.signature(f).parameters) - given.get(name, set())
            if name not in given or missing:
                sys.exit(f"surface.py: Client.{name} is not called with {sorted(missing) or 'anything'}")


class Exchange:
    """A server that lets out the given runs, each in a claim of its own, and accepts their reports."""

    url = "http://exchange"

    def __init__(self, runs):
        self.runs, self.reported, self.mu = list(runs), threading.Semaphore(0), threading.Lock()

    def ask(self, method, path, *, body, timeout, safe, until=None):
        with self.mu:
            record(method, path, "", None, body, "application/json")
            call = json.loads(body)
            if path == "/v1/reports":
                for _ in call["reports"]:
                    self.reported.release()
                return 200, Read("ReportsAnswer", results=[
                    Read("ReportResult", accepted=False, reason="invalid" if "output" in r else "stale", message="m") for r in call["reports"]])
            if path == "/v1/heartbeats":
                return 200, Read("BeatsAnswer", runs=[Read("BeatResult", **{**run, "remainingMs": 60_000, "lockedUntil": soon(), "stop": False,
                                                                            "reason": "undo"}) for run in call["runs"]])
            run = self.runs.pop(0) if self.runs else None
        if run is None and until is not None and until.wait(60):
            raise Interrupted
        return 200, Read("ClaimAnswer", runs=[run] if run else [])

    def interrupt(self):
        pass

    def close(self):
        pass


def soon():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))


def all_of_an_agent():
    agent, begun = Agent("a"), threading.Event()

    @agent.do("x")
    def do(input, run):
        if input == "done":
            return {"fine": True}
        if input == "failed":
            raise Failed("no", code="c", retry_after=1, no_effect=True)
        if input == "rejected":
            raise Rejected("no")
        run.progress(1)
        begun.set()
        while run.reason != "draining":
            time.sleep(0.01)
        run.check()

    @agent.undo("x")
    def undo(input, output, run):
        pass

    def a_run(number, input, **more):
        return Read("Run", **{**dict(job="job_" + "0" * 32, step="s", action="x", run=number, direction="do", input=input, key="k",
                                     lockedUntil=soon(), completeBy=soon(), remainingMs=60_000, priority=0), **more})

    runs = [a_run(1, "done"), a_run(2, "failed"), a_run(3, "rejected"), a_run(4, "undone", direction="undo", output=1, doKey="d")]
    exchange = Exchange([*runs, a_run(5, "draining")])
    host = Host(lambda: exchange, [agent], holder="h", heartbeat=0.3)
    host.start()
    for _ in range(len(runs) + 1):  # one is refused as invalid, and replaced
        if not exchange.reported.acquire(timeout=60):
            sys.exit("surface.py: a run was not reported")
    begun.wait(60)
    while not any(c["path"] == "/v1/heartbeats" and "progress" in json.dumps(c["body"]) for c in list(calls)):
        time.sleep(0.01)
    host.drain(1)


def main():
    all_of_the_client()
    all_of_an_agent()
    refusal(Read("Problem", code="invalid", title="t", detail="d", hint="h", errors=[]))
    refusal(Read("Problem", code="", title="t", errors=[]))
    enums = {"ReportResult.reason": NOT_OURS, "Run.direction": ["do", "undo"]}
    json.dump({"calls": calls, "reads": {k: sorted(v) for k, v in reads.items()}, "enums": enums}, sys.stdout)


if __name__ == "__main__":
    main()
