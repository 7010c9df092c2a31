"""The client for async code: the methods of Client, as coroutines, and agents as a part of an application's event loop.

Each call runs the method of Client on a thread, of a bounded number, so that both clients are one. A call whose task is
cancelled is interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Generator, Iterator, List, Mapping, Optional, TypeVar, cast

from .agent import Agent
from .client import OUTAGE, Client, holder
from .connection import Stop
from .errors import Seconds
from .host import Host

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
MAX_CALLS = 32  # under way at once, each on a thread; further calls wait
_END = object()


def _call(method: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        stop = Stop()
        return await self._on_thread(stop, functools.partial(method, self._client._stopped_by(stop), *args, **kwargs))

    return call


def _iterate(method: Callable[Concatenate[Client, P], Iterator[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @functools.wraps(method)
    async def iterate(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        stop = Stop()
        items = cast("Generator[T, None, None]", method(self._client._stopped_by(stop), *args, **kwargs))
        try:
            while True:
                item = await self._on_thread(stop, functools.partial(next, items, _END))
                if item is _END:
                    return
                yield cast(T, item)
        finally:
            stop.set()
            with contextlib.suppress(ValueError):  # it is still ending on its thread, because of the stop
                items.close()

    return iterate


class AsyncClient:
    """A Client for async code: the same arguments, and the same methods, to be awaited. What yields is read by
    `async for`. Use it by `async with`, or `await client.close()` at the end.

    calls: how many calls may be under way at once. wait() and follow() are calls for as long as they wait: an application
    with many waits has a second AsyncClient for them, so that they do not hold up its other calls.
    """

    def __init__(self, url: str = "", *, author: str = "", token: str = "", token_file: str = "",
                 server_ca: str = "", client_cert: str = "", client_key: str = "",
                 headers: Optional[Mapping[str, str]] = None, patience: Seconds = OUTAGE, offload: bool = False,
                 calls: int = MAX_CALLS) -> None:
        if calls < 1:
            raise ValueError("calls are at least 1")
        self._client = Client(url, author=author, token=token, token_file=token_file, server_ca=server_ca,
                              client_cert=client_cert, client_key=client_key, headers=headers, patience=patience, offload=offload)
        self._threads = ThreadPoolExecutor(calls, "perdure: calls")

    async def _on_thread(self, stop: Stop, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except asyncio.CancelledError:
            stop.set()
            raise

    async def close(self) -> None:
        """Waits for what is under way, and closes the connections that are kept for the next call."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    submit = _call(Client.submit)
    submit_all = _call(Client.submit_all)
    load_artifact = _call(Client.load_artifact)
    get = _call(Client.get)
    step = _call(Client.step)
    definition = _call(Client.definition)
    wait = _call(Client.wait)
    follow = _iterate(Client.follow)
    list = _iterate(Client.list)
    list_jobs = _call(Client.list_jobs)
    history = _call(Client.history)
    list_history = _call(Client.list_history)

    undo = _call(Client.undo)
    redo = _call(Client.redo)
    resume = _call(Client.resume)
    give_up = _call(Client.give_up)
    resume_step = _call(Client.resume_step)
    edit = _call(Client.edit)
    settle = _call(Client.settle)
    skip = _call(Client.skip)
    stop = _call(Client.stop)
    approve = _call(Client.approve)
    reject = _call(Client.reject)
    send_signal = _call(Client.send_signal)

    alerts = _iterate(Client.alerts)
    list_alerts = _call(Client.list_alerts)
    close_alert = _call(Client.close_alert)
    list_limits = _call(Client.list_limits)
    get_limit = _call(Client.get_limit)
    put_limit = _call(Client.put_limit)
    delete_limit = _call(Client.delete_limit)
    list_agents = _call(Client.list_agents)
    get_agent = _call(Client.get_agent)
    put_agent = _call(Client.put_agent)
    delete_agent = _call(Client.delete_agent)
    schedules = _iterate(Client.schedules)
    list_schedules = _call(Client.list_schedules)
    get_schedule = _call(Client.get_schedule)
    put_schedule = _call(Client.put_schedule)
    delete_schedule = _call(Client.delete_schedule)
    pause_schedule = _call(Client.pause_schedule)
    resume_schedule = _call(Client.resume_schedule)
    trigger_schedule = _call(Client.trigger_schedule)
    backfill_schedule = _call(Client.backfill_schedule)
    next_times = _call(Client.next_times)
    firings = _iterate(Client.firings)
    list_firings = _call(Client.list_firings)
    definitions = _iterate(Client.definitions)
    list_definitions = _call(Client.list_definitions)
    get_definition = _call(Client.get_definition)
    put_definition = _call(Client.put_definition)
    promote_definition = _call(Client.promote_definition)
    delete_definition = _call(Client.delete_definition)
    list_nodes = _call(Client.list_nodes)
    job_schema = _call(Client.job_schema)
    ready = _call(Client.ready)
    call = _call(Client.call)
    _check_token = _call(Client._check_token)

    def host(self, *agents: Agent, name: str = "", heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0,
             secrets_dir: Optional[str] = None) -> AsyncHost:
        """An agent host for the time of an `async with`, in the lifespan of a web application, say:

            async with client.host(payments, grace=20):
                ...

        Async handlers run on the event loop of the `async with`, where they may use the application's own pools and
        sessions; plain handlers run on threads. At the end the host drains, for at most `grace`, and the `async with` raises
        NotDrained if that was too short: catch and log it, so that the rest of the application still shuts down.
        """
        return AsyncHost(self._client, agents, name=name, heartbeat=heartbeat, grace=grace, secrets_dir=secrets_dir)

    async def serve(self, *agents: Agent, name: str = "", heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0,
                    secrets_dir: Optional[str] = None, stop: Optional[asyncio.Event] = None) -> None:
        """Client.serve for async code: async handlers run on this event loop. It drains, too, when its task is cancelled."""
        await self._check_token(agents)
        stop = stop or asyncio.Event()
        with _signals(stop):
            async with self.host(*agents, name=name, heartbeat=heartbeat, grace=grace, secrets_dir=secrets_dir):
                await stop.wait()


class AsyncHost:
    """Agents at work from the begin of an `async with` to its end. AsyncClient.host makes it."""

    def __init__(self, client: Client, agents: Any, *, name: str, heartbeat: Optional[Seconds], grace: Seconds,
                 secrets_dir: Optional[str] = None) -> None:
        self._make = functools.partial(Host, client._connect, agents, holder=holder(name), heartbeat=heartbeat, grace=grace,
                                       secrets_dir=secrets_dir, store=client._store if client._offload else None)
        self._make()  # refuses wrong arguments where they are given
        self._grace = grace
        self._host: Optional[Host] = None

    async def __aenter__(self) -> AsyncHost:
        if self._host is not None:
            raise RuntimeError("this host was used before: make another one")
        self._host = self._make(loop=asyncio.get_running_loop())
        self._host.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._host is not None
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._drain, args=(self._host, drained), name="perdure: drain", daemon=True).start()
        await drained

    def _drain(self, host: Host, drained: asyncio.Future[None]) -> None:
        error: Optional[Exception] = None
        try:
            host.drain(self._grace)
        except Exception as e:
            error = e

        def tell() -> None:
            if drained.cancelled():
                return
            if error is None:
                drained.set_result(None)
            else:
                drained.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            drained.get_loop().call_soon_threadsafe(tell)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Generator[None, None, None]:
    """Sets stop on SIGTERM and SIGINT, once; then they do what they did before."""
    loop = asyncio.get_running_loop()
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    held: List[signal.Signals] = []

    def restore() -> None:
        while held:
            number = held.pop()
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])

    def stopped() -> None:
        restore()
        stop.set()

    try:
        for number in before:
            loop.add_signal_handler(number, stopped)
            held.append(number)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows; or not the main thread
        pass
    try:
        yield
    finally:
        restore()
