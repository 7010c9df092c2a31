"""A web application with FastAPI: it submits jobs, answers how they stand, and carries an agent of its own.

    uvicorn fastapi_app:app                  # PERDURE_SERVER: the server's URL

The agent's handlers are `async def`, and run on the application's event loop. They begin to work when the application has
started. When it is told to stop, the agent drains: what runs may finish within the grace, the rest is given back, and
another process goes on with it.
"""

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Dict

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from perdure import Agent, AsyncClient, AsyncRun, Conflict, NotDrained, NotFound, Unavailable

log = logging.getLogger("letters")
mail = Agent("mail", slots=8)
MAX_WAITS = 64  # requests that wait at once; further ones wait for one of these to end
outbox: Dict[str, str] = {}  # stands for a mail service that recognizes repetitions by their key


class Letter(BaseModel):
    to: str
    parts: int = 1


@mail.do("send")
async def send(input: Letter, run: AsyncRun) -> Dict[str, str]:
    for part in range(1, 1 + input.parts):
        await run.sleep(0.1)  # stands for the work
        run.progress({"parts": part})
    outbox[run.key] = input.to
    return {"id": run.key}


@mail.undo("send")
async def unsend(input: Letter, output: Any, run: AsyncRun) -> None:
    await asyncio.sleep(0)
    outbox.pop(run.do_key, None)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Waits have a client of their own, so that they do not hold up the other calls."""
    async with AsyncClient(author="web") as client, AsyncClient(calls=MAX_WAITS) as waits:
        app.state.perdure, app.state.waits = client, waits
        try:
            async with client.host(mail, grace=10):
                yield
        except NotDrained as e:  # those runs expire, and are done again: what follows here must still be shut down
            log.warning("the agent did not drain: %s", e)


app = FastAPI(title="letters")
app.router.lifespan_context = lifespan  # from FastAPI 0.93 on: FastAPI(lifespan=lifespan)


@app.exception_handler(Unavailable)
async def unavailable(_: Request, error: Unavailable) -> JSONResponse:
    """The server is away: the caller may repeat any request."""
    return JSONResponse({"detail": error.message}, 503, {"Retry-After": "1"})


@app.put("/letters/{key}", status_code=202)
async def write(key: str, letter: Letter) -> Dict[str, Any]:
    """Answers once the job is stored. The same key is the same job, so a client may repeat the request."""
    definition = {"type": "letter", "key": key, "onFailure": "undo", "steps": {
        "send": {"agent": "mail", "with": letter, "undo": {}, "completeWithin": "10m"}}}
    try:
        job, created = await app.state.perdure.submit(definition)
    except Conflict as e:
        raise HTTPException(409, e.message) from e
    return {"id": job["id"], "created": created}


@app.get("/letters/{key}")
async def read(key: str, wait: float = 0) -> Dict[str, Any]:
    client: AsyncClient = app.state.perdure
    try:
        job = await app.state.waits.wait(key, timeout=min(wait, 30)) if wait else await client.get(key)
    except (TimeoutError, asyncio.TimeoutError):
        job = await client.get(key)
    except NotFound as e:
        raise HTTPException(404, e.message) from e
    step = job["steps"]["send"]
    return {"phase": job["phase"], "current": job["current"], "runs": step["run"], "output": step.get("output"),
            "error": step.get("lastError"), "waitsFor": step["why"]["text"] if "why" in step else None}


@app.delete("/letters/{key}", status_code=202)
async def take_back(key: str) -> Dict[str, Any]:
    try:
        job = await app.state.perdure.undo(key, "taken back by its writer")
    except NotFound as e:
        raise HTTPException(404, e.message) from e
    return {"id": job["id"], "desired": job["desired"]}


logging.basicConfig(level=logging.INFO)
