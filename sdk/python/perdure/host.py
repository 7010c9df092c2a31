"""The part of a process that carries agents: it claims runs, executes each within the time that it has, and
reports how it ended.

One rule is above all others: once the time of a run has passed, the host says nothing about it any more. Time is
counted from before the question was asked, so that the host errs early only.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import traceback
import urllib.parse
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, List, Optional, Sequence, Tuple, cast

from . import artifact, clock
from .agent import Agent, AsyncRun, Run, interrupted, report_of, run_of
from .clock import Backoff, Instant
from .connection import Connection, Interrupted, to_json
from .errors import Error, Failed, Invalid, NoEffect, NotDrained, Rejected, Seconds, seconds
from .loop import LoopThread, Outcome, outcome
from .live import Handle, Hosted, Live, Remembered, Term, term_of
from .secret import Secrets

log = logging.getLogger("perdure")

MAX_BATCH = 1000            # reports or heartbeats in a call
BATCH_BYTES = 4 << 20       # of reports in one call; one report alone may be larger
SENDERS = 2                 # a slow call with reports does not hold up what became ready after it
CLAIM_MARGIN = 15.0         # how much longer than its wait a claim may take
REPORT_TIMEOUT = 10.0
RETRIEVE_TIMEOUT = 2.0      # for asking, in a drain, what a lost claim has brought
FRUITLESS = 1.0             # a claim that started nothing and took less is not repeated at once

NOT_OURS = ("late", "stale", "unknown", "forbidden", "invalid", "conflict")


class Host:
    """Carries agents until drain() is called. `with client.host(agent):` starts it, and drains it at the end.

    Claims, heartbeats and reports are made on daemon threads, and plain handlers run on such threads. Async handlers run
    on the given event loop; without one, on an event loop that the host runs on a thread of its own. So a handler that
    blocks the event loop delays other async handlers, but no heartbeat.
    """

    def __init__(self, connect: Callable[[], Connection], agents: Sequence[Agent], *, holder: str,
                 heartbeat: Optional[Seconds] = 10.0, grace: Seconds = 30.0, claim_wait: float = 20.0, secrets_dir: Optional[str] = None,
                 loop: Optional[asyncio.AbstractEventLoop] = None, now: Callable[[], Instant] = clock.now,
                 store: Optional[artifact.Store] = None) -> None:
        if not agents:
            raise ValueError("there is no agent to carry")
        if len({a.name for a in agents}) < len(agents):
            raise ValueError("two agents have the same name")
        for agent in agents:
            if not agent.actions:
                raise ValueError(f'agent {agent.name} has no handlers: @agent.do("NAME") makes one of a function')
        self._heartbeat = None if heartbeat is None else seconds(heartbeat, "heartbeat")
        if self._heartbeat is not None and self._heartbeat < 0.1:
            raise ValueError("a heartbeat is at least 0.1 s; None: no heartbeats")
        self._connect, self._holder, self._grace = connect, holder, seconds(grace, "grace")
        self._secrets = Secrets(secrets_dir)
        self._store = store  # None: outputs are reported as they are
        self._loop = loop
        self._own_loop: Optional[LoopThread] = None
        self._claim_wait, self._now = min(claim_wait, 60.0), now
        self._hosted = [Hosted(a, connect()) for a in agents]
        self._changed = threading.Condition()  # guards all below, and tells of every change
        self._live: Dict[Handle, Live] = {}
        self._recent = Remembered()
        self._outbox: List[Live] = []
        self._claimers = 0
        self._notes: List[Tuple[int, str, Tuple[object, ...]]] = []
        self._beat_failed = ""  # the latest error of the heartbeats; empty if they are answered
        self._draining, self._ended = threading.Event(), threading.Event()
        self._look = threading.Event()  # a lock may end sooner than the watcher thinks

    def start(self) -> None:
        """Begins to claim runs."""
        if self._loop is None and any(hosted.agent.has_async for hosted in self._hosted):
            self._own_loop = LoopThread()
            self._loop = self._own_loop.loop
        self._claimers = len(self._hosted)
        for hosted in self._hosted:
            log.info("agent %s: claims runs at %s, slots %d", hosted.agent.name, hosted.claims.url, hosted.agent.slots)
            self._thread(f"claims of {hosted.agent.name}", self._claim_loop, hosted)
        for _ in range(SENDERS):
            self._thread("reports", self._send_loop)
        self._thread("locks", self._watch_loop)
        if self._heartbeat is not None:
            self._thread("heartbeats", self._beat_loop, self._heartbeat)

    def __enter__(self) -> Host:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drain(self._grace)

    @contextmanager
    def _locked(self) -> Generator[None, None, None]:
        """Holds the lock. Log lines are collected, and written after its release: a log that blocks must not keep it."""
        notes: List[Tuple[int, str, Tuple[object, ...]]] = []
        try:
            with self._changed:
                yield
                notes, self._notes = self._notes, notes
        finally:
            for level, message, arguments in notes:
                log.log(level, message, *arguments)

    def _note(self, level: int, message: str, *arguments: object) -> None:
        """Notes a line for the log. Called under the lock."""
        self._notes.append((level, message, arguments))

    def _thread(self, name: str, target: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=target, args=args, name=f"perdure: {name}", daemon=True).start()

    # Claims.

    def _claim_loop(self, hosted: Hosted) -> None:
        idle = Backoff(0.02, FRUITLESS)
        try:
            while True:
                with self._locked():
                    self._changed.wait_for(lambda: hosted.free() > 0 or self._draining.is_set())
                    most = hosted.free()
                if self._draining.is_set():
                    return
                began, request = time.monotonic(), secrets.token_hex(16)
                got = self._claim(hosted, most, request)
                if got is None:
                    self._retrieve(hosted, request)
                    return
                if self._arrived(hosted, *got) or time.monotonic() - began >= FRUITLESS:
                    idle.reset()
                elif not idle.pause(self._draining):  # one that brings what is known again: never a busy loop
                    return
        finally:
            hosted.claims.close()
            with self._locked():
                self._claimers -= 1
                self._changed.notify_all()

    def _claim(self, hosted: Hosted, most: int, request: str) -> Optional[Tuple[List[Any], Instant, Instant]]:
        """Asks until there is an answer: under one requestId, so that the runs of an answer that was lost come
        again. None if the host stops claiming before that."""
        retry, failed = Backoff(0.1, 5.0), ""
        while not self._draining.is_set():
            sent = self._now()
            try:
                runs = self._ask_for_runs(hosted, most, self._claim_wait, request, self._draining)
                if failed:
                    log.info("claims of %s are answered again", hosted.agent.name)
                return runs, sent, self._now()
            except Interrupted:
                return None
            except Error as e:
                if failed != str(e):
                    log.warning("claim failed; retrying (%s): %s", hosted.agent.name, e)
                failed = str(e)
                if not retry.pause(self._draining, e.retry_after):
                    return None
        return None

    def _ask_for_runs(self, hosted: Hosted, most: int, wait: float, request: str,
                      until: Optional[threading.Event] = None) -> List[Any]:
        body = {"holder": self._holder, "max": most, "wait": clock.duration(wait), "requestId": request, "secrets": True}
        if self._heartbeat is not None:
            body["heartbeat"] = clock.duration(self._heartbeat)
        path = f"/v1/agents/{urllib.parse.quote(hosted.agent.name, safe='')}/claim"
        margin = CLAIM_MARGIN if wait else RETRIEVE_TIMEOUT
        _, answer = hosted.claims.ask("POST", path, body=to_json(body), timeout=wait + margin, safe=True, until=until)
        return _list(answer, "runs")

    def _retrieve(self, hosted: Hosted, request: str) -> None:
        """Asks what a claim whose answer is not known has brought, so that it can be given back at once instead of
        expiring. If it has brought nothing this may claim one run anew, which is given back the same way."""
        sent = self._now()
        try:
            runs = self._ask_for_runs(hosted, 1, 0.0, request)
        except Error as e:
            log.debug("claim of %s at the begin of the drain: answer not known: %s", hosted.agent.name, e)
            return
        self._arrived(hosted, runs, sent, self._now())

    def _arrived(self, hosted: Hosted, raws: List[Any], sent: Instant, ended: Instant) -> int:
        """Admits what a claim has brought, and says how many runs it started.

        When the answer was given is known only between bounds: not before the claim was sent, nor before it had
        waited for as long as the answer says. Time counts from there. Where that leaves open much of the time that
        a run has, because the answer was slow, a heartbeat tells how the run stands."""
        arrived: List[Tuple[Run, Term]] = []
        unclear: List[int] = []
        took = ended.mono - sent.mono
        for raw in raws:
            try:
                kind = AsyncRun if hosted.agent.is_async(raw["action"], raw["direction"]) else Run
                run = run_of(hosted.agent.name, raw, kind)
                waited = min(clock.millis(raw.get("waitedMs", 0)), took)
                term = term_of(run, sent.add(waited), raw)
            except (KeyError, TypeError, ValueError, AttributeError) as e:
                log.error("a run of %s cannot be read, and will expire: %s: %s", hosted.agent.name, type(e).__name__, e)
                continue
            if took - waited > clock.millis(raw["remainingMs"]) / 10:
                unclear.append(len(arrived))
            arrived.append((run, term))
        if unclear:
            self._confirm(hosted, arrived, unclear)
        return sum(self._admit(hosted, run, term) for run, term in arrived if not term.over)

    def _confirm(self, hosted: Hosted, arrived: List[Tuple[Run, Term]], unclear: List[int]) -> None:
        """Asks by heartbeat how runs that have just arrived stand. Without an answer they keep their terms."""
        at = {(arrived[i][0].job, arrived[i][0].step, arrived[i][0].number): i for i in unclear}
        sent = self._now()
        try:
            answers = self._beat_call(hosted.claims, list(at), {}, CLAIM_MARGIN)
        except Error as e:
            log.debug("heartbeat before the start failed: %s", e)
            return
        for handle, answer in answers:
            if handle in at:
                run, term = arrived[at[handle]]
                if answer.get("stop") and answer.get("reason") in NOT_OURS:
                    term.over = True
                    log.warning("run discarded, it is not ours any more: %s", _about(run))
                else:
                    try:
                        new = term_of(run, sent, answer)
                    except (KeyError, TypeError, ValueError):
                        continue
                    term.lock, term.ultimatum, term.unwanted = new.lock, new.ultimatum, bool(answer.get("stop"))

    def _admit(self, hosted: Hosted, run: Run, term: Term) -> bool:
        """Starts a run, unless it is known, or its time is used up, or nothing will come of it here: the
        job has turned, the host drains, no slot is free. Then it is given back."""
        with self._locked():
            live = Live(run, hosted, term.lock, term.ultimatum)
            if live.handle in self._live or live.handle in self._recent:
                self._note(logging.WARNING, "run arrived again, not started again: %s", _about(run))
                return False
            if term.lock.reached(self._now()):
                self._recent.add(live.handle)
                self._note(logging.WARNING, "run discarded, its time was used up: %s", _about(run))
                return False
            self._live[live.handle] = live
            hosted.held += 1
            self._look.set()
            if term.unwanted or self._draining.is_set() or hosted.busy >= hosted.agent.slots:
                self._give_back(live)
                return False
            hosted.busy += 1
            live.running = True
            run._until, run._send = lambda: live.ultimatum, lambda data: self._keep_progress(live, data)
        if isinstance(run, AsyncRun):
            self._start_task(live)
        else:
            self._thread(f"{run.agent} {run.step} {run.number}", self._execute, live)
        return True

    # Runs.

    def _execute(self, live: Live) -> None:
        """Carries out the run of a plain handler, on a thread of its own."""
        output: Any = None
        error: Optional[BaseException] = None
        if not self._begin(live):
            return
        try:
            self._resolve(live.run)
            output = self._offloaded(live.run, live.hosted.agent.execute(live.run))
        except BaseException as e:  # SystemExit too: other runs must not be affected
            error = e
        self._handler_ended(live, output, error)

    def _resolve(self, run: Run) -> None:
        """Replaces the references to secrets in the input of a run. Rejected if one is missing."""
        run.input, run._redactor = self._secrets.resolve(run.input, run._secrets)

    def _offloaded(self, run: Run, output: Any) -> Any:
        """The output of a run, of which large values are stored as artifacts, without secrets."""
        if self._store is None or run.direction != "do":
            return output
        try:
            if run._redactor is not None:
                output = run._redactor.output(output)
            return artifact.offload(output, self._store)
        except (TypeError, ValueError, RecursionError):
            return output  # what has no JSON form is reported as such
        except Error as e:
            raise Failed(f"the output could not be stored as an artifact: {e}", code=e.code) from e

    def _start_task(self, live: Live) -> None:
        """Carries out the run of an async handler, as a task of the event loop."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._create_task, self._loop, live)
        except RuntimeError:  # the application has closed its loop without a drain
            with self._locked():
                live.running = False
                if live.lost:
                    self._forget(live)
                else:
                    self._vacate(live.hosted)
                    self._give_back(live)

    def _create_task(self, loop: asyncio.AbstractEventLoop, live: Live) -> None:
        if not self._begin(live):
            return
        task = loop.create_task(self._outcome(live))
        live.task = task  # the loop itself keeps only weak references to tasks
        task.add_done_callback(lambda t: self._task_ended(live, t))

        def interrupt() -> None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # the loop is closed: nothing runs there any more
                pass

        with self._locked():
            live.run._interrupt = interrupt
            if live.run.cancelled.is_set():  # between _begin and here
                interrupt()

    async def _outcome(self, live: Live) -> Outcome:
        """The outcome of an async handler. If the run was over before the event loop came to it, the handler is not called."""
        if live.run.cancelled.is_set():
            return None, NoEffect("the run was over before it began")
        try:
            self._resolve(live.run)
        except Exception as e:
            return None, e
        output, error = await outcome(live.hosted.agent, live.run)
        if error is None and self._store is not None:
            try:
                output = await asyncio.get_running_loop().run_in_executor(None, self._offloaded, live.run, output)
            except Failed as e:
                error = e
        return output, error

    def _task_ended(self, live: Live, task: asyncio.Task[Outcome]) -> None:
        live.task = None
        output, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        self._handler_ended(live, output, error)

    def _handler_ended(self, live: Live, output: Any, error: Optional[BaseException]) -> None:
        if error is not None and not isinstance(error, Failed) and not interrupted(live.run, error):
            self._log_failure(live.run, error)
        try:
            fields = report_of(live.run, output, error)
            report = to_json(fields)
        except BaseException as e:  # an exception whose text raises, say
            fields = report_of(live.run, None, Failed(f"{type(e).__name__} while reporting", code="panic"))
            report = to_json(fields)
        with self._locked():
            live.running = False
            if live.lost:
                self._forget(live)
                return
            self._vacate(live.hosted)
            self._note_report(live.run, fields, error)
            self._post(live, report)

    @staticmethod
    def _log_failure(run: Run, error: BaseException) -> None:
        """Logs an exception that is no Failed, with its traceback, and without the secrets of the run."""
        if run._redactor is None:
            log.error("handler failed: %s", _about(run), exc_info=error)
            return
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
        log.error("handler failed: %s\n%s", _about(run), run._redactor.text(text))

    def _note_report(self, run: Run, fields: Dict[str, Any], error: Optional[BaseException]) -> None:
        """Notes a run that did not succeed. Other exceptions than Failed were logged with their traceback."""
        if fields["outcome"] in ("done", "returned"):
            return
        said = (fields["error"].get("code", ""), fields["error"]["message"], _about(run))
        if error is None:
            self._note(logging.WARNING, "output refused (%s): %s: %s", *said)
        elif isinstance(error, Rejected):
            self._note(logging.WARNING, "run rejected (%s): %s: %s", *said)
        elif isinstance(error, Failed):
            self._note(logging.INFO, "run failed (%s): %s: %s", *said)

    def _begin(self, live: Live) -> bool:
        """Checks again, when its thread runs, whether the run may start."""
        with self._locked():
            if live.lost or live.lock.reached(self._now()):
                live.running = False
                if not live.lost:
                    self._vacate(live.hosted)
                    self._lose(live, "timeUp")
                else:
                    self._forget(live)
                return False
            if self._draining.is_set():
                live.running = False
                self._vacate(live.hosted)
                self._give_back(live)
                return False
            return True

    def _give_back(self, live: Live) -> None:
        self._note(logging.INFO, "run given back unstarted: %s", _about(live.run))
        run = live.run
        self._post(live, to_json({"job": run.job, "step": run.step, "run": run.number, "outcome": "returned"}))

    def _post(self, live: Live, report: bytes) -> None:
        live.report = report
        self._outbox.append(live)
        self._changed.notify_all()

    def _vacate(self, hosted: Hosted) -> None:
        hosted.busy -= 1
        self._changed.notify_all()

    def _lose(self, live: Live, reason: str) -> None:
        """Ends a run that this host no longer holds. Its slot is free from here on, even if its handler goes on."""
        live.lost, live.report = True, None
        self._note(logging.WARNING, "run given up (%s): %s", reason, _about(live.run))
        if not live.running:
            self._forget(live)
            return
        self._vacate(live.hosted)
        live.run.cancel(reason)

    def _forget(self, live: Live) -> None:
        self._live.pop(live.handle, None)
        self._recent.add(live.handle)
        live.hosted.held -= 1
        self._changed.notify_all()

    def _watch_loop(self) -> None:
        """Ends runs whose lock has passed, on either clock."""
        pause = 1.0
        while not self._ended.is_set():
            self._look.wait(pause)  # the wall clock is checked once a second
            self._look.clear()
            with self._locked():
                now, pause = self._now(), 1.0
                for live in [x for x in self._live.values() if not x.lost]:
                    if live.lock.reached(now):
                        self._lose(live, "timeUp")
                    else:
                        pause = min(pause, live.lock.left(now) + 0.001)

    # Heartbeats.

    def _beat_loop(self, heartbeat: float) -> None:
        """Beats for all live runs every third of what was promised: one beat may be lost, and the next still comes
        in time. It goes on through the drain, until the end."""
        connection = self._connect()
        while not self._ended.wait(heartbeat / 3):
            with self._locked():
                handles = [h for h, live in self._live.items() if not live.lost]
            for i in range(0, len(handles), MAX_BATCH):
                self._beat(connection, handles[i:i + MAX_BATCH], heartbeat * 2 / 3)
        connection.close()

    def _beat(self, connection: Connection, handles: List[Handle], timeout: float) -> None:
        with self._locked():
            lives = [self._live[h] for h in handles if h in self._live]
            progress = {live.handle: live.progress for live in lives if live.progress is not None}
        sent = self._now()
        try:
            answers = self._beat_call(connection, [live.handle for live in lives], progress, timeout)
        except Error as e:
            if not self._ended.is_set() and self._beat_failed != str(e):
                log.warning("heartbeat failed; retrying (%d runs): %s", len(lives), e)
            self._beat_failed = str(e)
            return
        if self._beat_failed:
            log.info("heartbeats are answered again")
            self._beat_failed = ""
        with self._locked():
            for live in lives:
                if live.progress is progress.get(live.handle):
                    live.progress = None
            for handle, answer in answers:
                live_now = self._live.get(handle)
                if live_now is not None and not live_now.lost:
                    self._heed(live_now, answer, sent)
        self._look.set()

    def _beat_call(self, connection: Connection, handles: List[Handle], progress: Dict[Handle, bytes],
                   timeout: float) -> List[Tuple[Handle, Dict[str, Any]]]:
        beats = []
        for handle in handles:
            beat = to_json(dict(zip(("job", "step", "run"), handle)))
            beats.append(beat[:-1] + b',"progress":' + progress[handle] + b"}" if handle in progress else beat)
        _, answer = connection.ask("POST", "/v1/heartbeats", body=self._set("runs", beats), timeout=timeout, safe=True)
        answers = [cast("Dict[str, Any]", a) for a in _list(answer, "runs") if isinstance(a, dict)]
        return [((a.get("job", ""), a.get("step", ""), a.get("run", 0)), a) for a in answers]

    def _set(self, name: str, items: List[bytes]) -> bytes:
        return b'{"holder":%s,"%s":[%s]}' % (to_json(self._holder), name.encode(), b",".join(items))

    def _heed(self, live: Live, answer: Dict[str, Any], sent: Instant) -> None:
        """Applies the answer to a heartbeat. A lost run is never revived, and no heartbeat extends a run beyond
        its deadline."""
        stop, reason = bool(answer.get("stop")), answer.get("reason")
        if stop and reason in NOT_OURS:
            if live.report is None:  # else the answer to its report is what counts
                self._lose(live, "notOurs")
            return
        try:
            term = term_of(live.run, sent, answer)
        except (KeyError, TypeError, ValueError):
            return
        if answer.get("lockedUntil"):
            live.ultimatum = clock.later(live.ultimatum, term.ultimatum)  # both err early: the later one is nearer
        live.lock = clock.earlier(clock.later(live.lock, term.lock), live.ultimatum)
        if stop and live.report is None and not live.run.cancelled.is_set():
            # Still ours: what the handler says about it is reported, so that the step can turn at once.
            self._note(logging.INFO, "run told to stop (%s): %s", reason, _about(live.run))
            live.run.cancel("stopped")

    def _keep_progress(self, live: Live, data: bytes) -> None:
        with self._locked():
            live.progress = data

    # Reports.

    def _send_loop(self) -> None:
        connection = self._connect()
        while True:
            batch = self._take()
            if not batch:
                break
            self._deliver(connection, batch)
        connection.close()

    def _take(self) -> List[Live]:
        """Waits for reports; empty at the host's end."""
        with self._locked():
            while True:
                self._changed.wait_for(lambda: self._outbox or self._ended.is_set())
                if self._ended.is_set():
                    return []
                batch: List[Live] = []
                size = 0
                while self._outbox and len(batch) < MAX_BATCH:
                    report = self._outbox[0].report
                    if report is not None:
                        size += len(report)
                        if batch and size > BATCH_BYTES:
                            break
                        batch.append(self._outbox[0])
                    self._outbox.pop(0)
                if batch:
                    return batch

    def _deliver(self, connection: Connection, batch: List[Live]) -> None:
        """Repeats a call until it is answered, or until none of its runs is ours any more. The same report
        twice does no harm."""
        retry, failed = Backoff(0.05, 2.0), False
        while not self._ended.is_set():
            batch, reports = self._ours(batch)
            if not batch:
                return
            try:
                _, answer = connection.ask("POST", "/v1/reports", body=self._set("reports", reports),
                                           timeout=REPORT_TIMEOUT, safe=True)
                self._answered(batch, _list(answer, "results", len(batch)))
                if failed:
                    log.info("reports are answered again")
                return
            except Invalid as e:
                # One of them spoils the call: alone, only that one is lost.
                if len(batch) > 1:
                    for live in batch:
                        self._deliver(connection, [live])
                else:
                    self._answered(batch, [{"accepted": False, "reason": "invalid", "message": str(e)}])
                return
            except Error as e:
                if not failed:
                    log.warning("report failed; retrying (%d reports): %s", len(batch), e)
                failed = True
                if not retry.pause(self._ended, e.retry_after):
                    return

    def _ours(self, batch: List[Live]) -> Tuple[List[Live], List[bytes]]:
        """Drops the runs whose time has passed, and returns the others with their reports."""
        with self._locked():
            now = self._now()
            for live in batch:
                if not live.lost and live.lock.reached(now):
                    self._lose(live, "timeUp")
            kept = [live for live in batch if live.report is not None]
            return kept, [live.report for live in kept if live.report is not None]

    def _answered(self, batch: List[Live], results: List[Any]) -> None:
        with self._locked():
            for live, result in zip(batch, results):
                if live.lost:
                    continue  # its time passed while the call was under way
                accepted = isinstance(result, dict) and result.get("accepted") is True
                if not accepted:
                    reason, message = (result.get("reason"), result.get("message")) if isinstance(result, dict) else ("", result)
                    self._note(logging.WARNING, "report refused (%s): %s: %s", reason, message or "no message", _about(live.run))
                    if reason == "invalid" and not live.mended:
                        # If the server cannot keep the output, the run must not be left to expire.
                        live.mended = True
                        error = Failed(f"the output was refused: {message}", code="outputInvalid")
                        self._post(live, to_json(report_of(live.run, None, error)))
                        continue
                self._forget(live)

    # The way out.

    def drain(self, grace: Seconds) -> None:
        """Ends the host in an orderly way: claims no more; gives back what has not started; lets handlers finish until
        the grace is over, less a quarter of it but at most 3 s; then cancels them, and reports what they leave as
        returned, effect unknown, which counts no failure. Heartbeats are last to stop. Raises NotDrained."""
        if self._loop is not None and _running_loop() is self._loop:
            raise RuntimeError("drain() would block the event loop that async handlers need to end: use "
                               "`async with client.host(...)` of an AsyncClient, or call drain() on another thread")
        grace = seconds(grace, "grace")
        end = time.monotonic() + grace
        tail = min(grace / 4, 3.0)
        with self._locked():
            self._draining.set()
            self._changed.notify_all()
        for hosted in self._hosted:
            hosted.claims.interrupt()
        with self._locked():
            if not self._until(end - tail, self._idle):
                for live in self._live.values():
                    if live.running and not live.lost:
                        self._note(logging.INFO, "run cut short by the drain: %s", _about(live.run))
                        live.run.cancel("draining")
                self._until(end - tail / 3, self._idle)
            self._until(end, lambda: not self._unreported())
            running = [live.run for live in self._live.values() if live.running and not live.lost]
            unreported = [live.run for live in self._live.values() if live.report is not None]
            self._ended.set()
            self._changed.notify_all()
        self._look.set()
        if self._own_loop is not None:
            self._own_loop.close()
        if running or unreported:
            raise NotDrained(running, unreported)

    def _until(self, end: float, condition: Callable[[], bool]) -> bool:
        return self._changed.wait_for(condition, timeout=max(0.0, end - time.monotonic()))

    def _idle(self) -> bool:
        return self._claimers == 0 and self._running() == 0

    def _running(self) -> int:
        return sum(hosted.busy for hosted in self._hosted)

    def _unreported(self) -> int:
        return sum(live.report is not None for live in self._live.values())


def _running_loop() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _list(answer: Any, name: str, count: Optional[int] = None) -> List[Any]:
    items = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(items, list) or count is not None and len(items) != count:
        raise Error("unavailable", f"the answer has no {name} that fit the question")
    return items


def _about(run: Run) -> str:
    return f"agent {run.agent}, action {run.action}, job {run.job}, step {run.step}, run {run.number}, {run.direction}"
