"""The agent that sdk/conformance_test.go plays its cases with, as conformance.py is, with handlers that are `async def`.

    python3 conformance_async.py SERVER
"""

import asyncio
import json
import logging
import sys

from perdure import Agent, AsyncClient, Failed, NoEffect, Rejected, RetryAfter

agent = Agent("conformance", slots=2)
calls, ended, reasons = 0, 0, []


def counted(handler):
    async def count(input, run):
        global calls, ended
        calls += 1
        try:
            return await handler(input, run)
        finally:
            ended += 1

    return count


async def over(run):
    """Waits until the run is over, as a handler does that awaits something for ever."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        reasons.append(run.reason)
        raise


@agent.do("echo")
@counted
async def echo(input, run):
    await asyncio.sleep(0)
    return {"input": input, "key": run.key, "number": run.number, "direction": run.direction,
            "remaining": 0 < run.remaining() <= 600}


@agent.undo("echo")
async def unecho(input, output, run):
    raise Rejected(json.dumps({"input": input, "output": output, "doKey": run.do_key}), code="seen")


@agent.do("half")
@counted
async def half(input, run):
    return None


@agent.do("fail")
@counted
async def fail(input, run):
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
async def wait(input, run):
    await over(run)


@agent.do("obey")
@counted
async def obey(input, run):
    try:
        await over(run)
    except asyncio.CancelledError:
        return {"obeyed": run.reason}


@agent.do("stubborn")
@counted
async def stubborn(input, run):
    work = asyncio.create_task(asyncio.sleep(input["ms"] / 1000))
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            pass
    reasons.append(run.reason)
    return {"late": True}


@agent.do("progress")
@counted
async def progress(input, run):
    run.progress(input)
    try:
        await run.sleep(3600)
    except asyncio.CancelledError:
        return None


@agent.do("large")
@counted
async def large(input, run):
    return "x" * input["n"]


@agent.do("odd")
@counted
async def odd(input, run):
    return {"notJSON": float("nan")}


@agent.do("log")
def log(input, run):  # a plain one among them
    while ended < input["after"]:
        run.sleep(0.01)
    return {"calls": calls, "reasons": reasons}


async def main():
    async with AsyncClient(sys.argv[1]) as client:
        await client.serve(agent, name="conformance", heartbeat=0.6, grace=4)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main())
