"""The agent that sdk/conformance_test.go plays its cases with; the one in TypeScript does the same.

    python3 conformance.py SERVER
"""

import json
import logging
import sys
import threading
import time

from perdure import Agent, Client, Failed, NoEffect, Rejected, RetryAfter

agent = Agent("conformance", slots=2)
mu = threading.Lock()
calls, ended, reasons = 0, 0, []


def counted(handler):
    def count(input, run):
        global calls, ended
        with mu:
            calls += 1
        try:
            return handler(input, run)
        finally:
            with mu:
                ended += 1

    return count


@agent.do("echo")
@counted
def echo(input, run):
    return {"input": input, "key": run.key, "number": run.number, "direction": run.direction,
            "remaining": 0 < run.remaining() <= 600}


@agent.undo("echo")
def unecho(input, output, run):
    raise Rejected(json.dumps({"input": input, "output": output, "doKey": run.do_key}), code="seen")


@agent.do("half")
@counted
def half(input, run):
    return None


@agent.do("fail")
@counted
def fail(input, run):
    how = input["how"]
    if how == "failed":
        raise Failed("no", code="c1")
    if how == "rejected":
        raise Rejected("no", code="c2", no_effect=True)
    if how == "retryAfter":
        raise RetryAfter(1.5, "busy")
    if how == "noEffect":
        raise NoEffect("nothing")
    if how == "long":
        raise Failed("é" * 5000, code="x" * 200)
    if how == "crash":
        sys.exit("crash")
    raise ValueError("plain")


@agent.do("wait")
@counted
def wait(input, run):
    run.cancelled.wait()
    reasons.append(run.reason)
    run.check()


@agent.do("obey")
@counted
def obey(input, run):
    run.cancelled.wait()
    reasons.append(run.reason)
    return {"obeyed": run.reason}


@agent.do("stubborn")
@counted
def stubborn(input, run):
    time.sleep(input["ms"] / 1000)
    reasons.append(run.reason)
    return {"late": True}


@agent.do("progress")
@counted
def progress(input, run):
    run.progress(input)
    run.cancelled.wait()
    return None


@agent.do("large")
@counted
def large(input, run):
    return "x" * input["n"]


@agent.do("odd")
@counted
def odd(input, run):
    return {"notJSON": float("nan")}


@agent.do("log")
def log(input, run):
    while ended < input["after"]:
        run.sleep(0.01)
    return {"calls": calls, "reasons": reasons}


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(message)s")
    Client(sys.argv[1]).serve(agent, name="conformance", heartbeat=0.6, grace=4)
