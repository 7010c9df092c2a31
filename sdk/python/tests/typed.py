"""A program of a user, for the type checker: what is right passes, and what is wrong is noticed. It is not run.

`mypy --strict` refuses an ignore that nothing needs: so each of them is an error that it has found.
"""

from typing import Any, AsyncIterator, Dict, Iterator, List, Optional

from perdure import Agent, Alert, AsyncClient, AsyncRun, Client, Job, Limit, Run
from perdure.testing import Fake, Server, Trial

payments = Agent("payments", slots=8)


@payments.do("charge")
def charge(input: Dict[str, int], run: Run) -> str:
    run.sleep(1)
    return run.key


@payments.undo("charge")
async def refund(input: Dict[str, int], output: Optional[str], run: AsyncRun) -> None:
    await run.sleep(1)


def plain(client: Client) -> None:
    job: Job = client.submit({"type": "t", "steps": {}}, key="k").job
    phase: str = job["phase"]
    jobs: Iterator[Job] = client.list(phase=phase, labels={"a": "b"})
    alerts: List[Alert] = client.list_alerts()["items"]
    limit: Limit = client.put_limit("own", 3, rate="5/s", per_key=1, keys={"a": {"rate": "9/m"}})
    client.settle("j", "s", "done", output=limit["used"])
    with client.host(payments, grace=1):
        pass
    job["fase"]  # type: ignore[typeddict-item]
    client.undo("j", 3)  # type: ignore[arg-type]
    client.skip("j")  # type: ignore[call-arg]
    print(jobs, alerts)


async def in_async_code(client: AsyncClient) -> None:
    job: Job = await client.wait("j", timeout=5)
    created: bool = (await client.submit(job["definition"])).created
    jobs: AsyncIterator[Job] = client.list(type="t")
    async for one in client.follow("j"):
        print(one["steps"]["s"].get("why"))
    async with client.host(payments):
        pass
    await client.undo("j", 3)  # type: ignore[arg-type]
    await client.skip("j")  # type: ignore[call-arg]
    await client.list()  # type: ignore[misc]
    print(created, jobs)


def tested() -> None:
    output: Any = Trial(payments, "charge", {"amount": 5}).crash("after").do()
    with Server() as server, server.client() as client, client.host(payments, Fake("stock").fail("s", 2)):
        print(output)
