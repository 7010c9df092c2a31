"""One call, over networks as they are: a server that says each answer by the byte."""

import datetime
import http.server
import os
import pathlib
import socket
import tempfile
import threading
import unittest
from unittest import mock

from perdure import BacklogFull, Client, Conflict, Error, Invalid, NotFound, Unavailable
from perdure.connection import Connection, to_json


class Server:
    """Reads requests, and writes the scripted answers: bytes; None closes the connection; "silence" says nothing."""

    def __init__(self, test, *answers):
        self.answers, self.requests = list(answers), []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.end = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.socket.close)
        test.addCleanup(self.end.set)

    def accept(self):
        while True:
            try:
                conn, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        with conn, conn.makefile("rb") as lines:
            while True:
                head = lines.readline()
                if not head:
                    return
                length = 0
                for line in iter(lines.readline, b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                self.requests.append((head.decode().split()[:2], lines.read(length)))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                if answer == "silence":
                    self.end.wait()
                    return
                conn.sendall(answer)


def answer(body=b'{"ok":1}', status="200 OK", kind="application/json", *more):
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def problem(code, status, *more):
    body = to_json({"type": "t", "title": "T", "status": int(status[:3]), "detail": "it is so", "code": code,
                    "hint": "do otherwise", "errors": []})
    return answer(body, status, "application/problem+json", *more)


class Urls(unittest.TestCase):
    """I18"""

    def test_an_error_about_a_url_does_not_repeat_its_password(self):
        for url in ("http://u:hunter2@h", "http://:hunter2@h", "http://u:hunter2", "http://h?password=hunter2", "ftp://u:hunter2@h",
                    "u:hunter2@h", "http://u:hun[ter2@h"):
            with self.subTest(url), self.assertRaises(ValueError) as refused:
                Connection(url, dict)
            self.assertNotIn("hun", str(refused.exception))
            self.assertIsNone(refused.exception.__cause__ or refused.exception.__context__)


class Tokens(unittest.TestCase):
    def sent(self, *, environment=None, **options):
        """The Authorization headers of two calls; between them the token file gets another token."""
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append(self.headers.get("Authorization"))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "13")
                self.end_headers()
                self.wfile.write(b'{"id":"job_"}')

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        with mock.patch.dict(os.environ, environment or {}), Client(f"http://127.0.0.1:{server.server_port}", **options) as client:
            client.get("a")
            if self.file.exists():
                self.file.write_text("pdr_2\n")
            client.get("a")
        return seen

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name, "token")

    def test_a_token_is_sent(self):
        self.assertEqual(self.sent(), [None, None])
        self.assertEqual(self.sent(token=" pdr_1\n"), ["Bearer pdr_1"] * 2)
        self.assertEqual(self.sent(environment={"PERDURE_TOKEN": "pdr_3"}), ["Bearer pdr_3"] * 2)
        self.assertEqual(self.sent(token="pdr_1", environment={"PERDURE_TOKEN": "pdr_3"}), ["Bearer pdr_1"] * 2)
        self.assertEqual(self.sent(token="pdr_1", headers={"Authorization": "Basic x"}), ["Basic x"] * 2)
        for options in {"token_file": str(self.file)}, {"environment": {"PERDURE_TOKEN_FILE": str(self.file)}}:
            self.file.write_text("pdr_1\n")
            self.assertEqual(self.sent(**options), ["Bearer pdr_1", "Bearer pdr_2"])
        self.file.write_text("pdr_1\n")
        both = {"PERDURE_TOKEN": "pdr_3", "PERDURE_TOKEN_FILE": str(self.file)}
        self.assertEqual(self.sent(environment=both), ["Bearer pdr_1", "Bearer pdr_2"])  # as the command line

    def test_what_cannot_be_a_token_is_refused(self):
        for token in ("a b", "a\nb", "\u00fc"):
            with self.assertRaises(Invalid) as refused:
                Client(token=token)
            self.assertNotIn(token, str(refused.exception))
        with mock.patch.dict(os.environ, {"PERDURE_TOKEN": "a b"}), self.assertRaisesRegex(Invalid, "PERDURE_TOKEN has no token"):
            Client()
        with self.assertRaises(ValueError):
            Client(token="a", token_file="b")
        client = Client("http://127.0.0.1:1", token_file=str(self.file))
        for text in (None, "", "a b", "x" * 5000):
            if text is not None:
                self.file.write_text(text)
            with self.assertRaises(Invalid):
                client.get("a")


class TestConnection(unittest.TestCase):
    def connect(self, *answers):
        server = Server(self, *answers)
        connection = Connection(server.url, lambda: {"X-Token": "t"})
        self.addCleanup(connection.close)
        return server, connection

    def test_kept_alive(self):
        server, connection = self.connect(answer(), answer())
        for _ in range(2):
            self.assertEqual(connection.ask("GET", "/a", query="b=c"), (200, {"ok": 1}))
        self.assertEqual(server.requests, [(["GET", "/a?b=c"], b"")] * 2)

    def test_kept_connection_was_closed(self):  # F100: it is tried again where that does no harm, and only there
        server, connection = self.connect(answer(), None, answer(), answer(), None)
        connection.ask("GET", "/1", safe=True)
        self.assertEqual(connection.ask("POST", "/2", body=b"{}", safe=True)[1], {"ok": 1})
        connection.ask("GET", "/3")
        with self.assertRaises(Unavailable):
            connection.ask("POST", "/4", body=b"{}")
        self.assertEqual([r[0][1] for r in server.requests], ["/1", "/2", "/2", "/3", "/4"])

    def test_answers_that_are_none(self):
        for reply, words in (
            (answer(b"<html>", "502 Bad Gateway", "text/html"), "answered 502"),
            (answer(b"", "302 Found", "text/plain", "Location: http://elsewhere/"), "elsewhere"),
            (answer(b"{", "200 OK"), "not Perdure's"),
            (answer(b'{"ok":1}')[:-3], "within 0.3 s"),
            (b"SSH-2.0-OpenSSH\r\n", "cannot be reached"),
            ("silence", "within 0.3 s"),
            (None, "cannot be reached"),
        ):
            _, connection = self.connect(reply)
            with self.assertRaises(Unavailable) as caught:
                connection.ask("GET", "/", timeout=0.3 if "within" in words else 20)
            self.assertIn(words, str(caught.exception))

    def test_a_wait_says_that_the_server_is_away(self):
        with Client("http://127.0.0.1:1") as client:
            for timeout in ("300ms", 0.3, datetime.timedelta(seconds=0.3)):
                with self.assertRaisesRegex(TimeoutError, "^after 0.3 s it is not known whether j is at rest: the server is not available: "
                                                          "http://127.0.0.1:1 cannot be reached: .*refused"):
                    client.wait("j", timeout=timeout)
            for timeout in ("5", "soon", "", "5 s", float("nan")):
                with self.assertRaisesRegex(ValueError, '^timeout: .* is no length of time: give seconds, a timedelta, or a text such as "30s"'):
                    client.wait("j", timeout=timeout)
            with self.assertRaisesRegex(TypeError, "^timeout: True is no length"):
                client.wait("j", timeout=True)

    def test_a_wait_that_ends_before_the_job_is_at_rest(self):
        server = Server(self, answer(b'{"phase":"running"}'))
        with Client(server.url) as client, self.assertRaisesRegex(TimeoutError, "^j was not at rest after 0 s$"):
            client.wait("j", timeout=0)

    def test_a_refused_key_is_named_as_the_argument(self):
        fault = {"pointer": "/header/Idempotency-Key", "message": "not a key", "hint": "use letters"}
        body = to_json({"title": "T", "status": 400, "detail": "d", "code": "invalid", "errors": [fault]})
        other = to_json({"title": "T", "status": 422, "detail": "d", "code": "invalid", "errors": [{"pointer": "/type", "message": "m"}]})
        server = Server(self, answer(body, "400 Bad", "application/problem+json"), answer(other, "422 No", "application/problem+json"))
        with Client(server.url) as client:
            with self.assertRaisesRegex(Invalid, r"^key: not a key \(use letters\)$") as caught:
                client.submit({"type": "t"}, key="a/b")
            self.assertEqual((caught.exception.errors[0]["pointer"], caught.exception.status), ("key", 400))
            with self.assertRaisesRegex(Invalid, "^/type: m$"):
                client.submit({"type": "t"}, key="k")

    def test_two_keys_of_one_job_are_refused(self):
        with Client("http://127.0.0.1:9") as client, self.assertRaisesRegex(ValueError, "'a'.*'b': give one"):
            client.submit({"type": "t", "key": "a", "steps": {"s": {"agent": "x"}}}, key="b")

    def test_refusals(self):
        _, connection = self.connect(problem("conflict", "409 Conflict"), problem("backlogFull", "429 Too", "Retry-After: 5"),
                                     problem("unavailable", "503 Away", "Retry-After: 1000000"))
        with self.assertRaises(Conflict) as caught:
            connection.ask("GET", "/")
        e = caught.exception
        self.assertEqual((e.code, e.message, e.hint, e.status), ("conflict", "it is so", "do otherwise", 409))
        with self.assertRaises(BacklogFull) as caught:
            connection.ask("GET", "/")
        self.assertEqual(caught.exception.retry_after, 5)
        with self.assertRaises(Unavailable) as caught:
            connection.ask("GET", "/")
        self.assertEqual(caught.exception.retry_after, 60, "bounded")

    def test_busy(self):
        """A server that is too busy has done nothing: any call is repeated after Retry-After and a random pause, for a while."""
        for code in ("backlogFull", "tooManyRequests"):
            busy = problem(code, "429 Too", "Retry-After: 5")
            server = Server(self, busy, busy, busy, busy, answer(to_json({"id": "j"}), "201 Created"), *[busy] * 100)
            pauses = []
            now = [0.0]

            def sleep(seconds):
                pauses.append(seconds)
                now[0] += seconds

            with Client(server.url, patience=30) as client, mock.patch("perdure.client.time.sleep", sleep), \
                    mock.patch("perdure.client.time.monotonic", lambda: now[0]):
                self.assertTrue(client.submit("type: t").created)
                self.assertEqual(len(pauses), 4)
                self.assertTrue(all(5 < p <= 9.5 for p in pauses), pauses)
                self.assertEqual(len(set(pauses)), 4, "random")
                now[0] = 0.0
                with self.assertRaises(Error) as caught:
                    client.submit("type: t")
                self.assertEqual((caught.exception.code, caught.exception.status), (code, 429))
                self.assertTrue(20 < now[0] <= 30, now)

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        with self.assertRaises(Unavailable) as caught:
            Connection(f"http://127.0.0.1:{port}", dict).ask("GET", "/")
        self.assertIn("perdure serve", str(caught.exception))

    def test_urls(self):
        for url in ("", "localhost:7420", "ftp://a", "http://", "http://a/?b", "http://user:secret@a"):
            self.assertRaises(ValueError, Connection, url, {})


class TestClient(unittest.TestCase):
    def test_a_submission_is_repeated_if_it_has_a_key(self):  # F008
        server = Server(self, None, answer(b'{"id":"job_1"}', "201 Created"))
        job, created = Client(server.url).submit({"type": "t", "key": "k", "steps": {}})
        self.assertEqual((job["id"], created, len(server.requests)), ("job_1", True, 2))
        self.assertEqual(server.requests[0], server.requests[1])

    def test_a_submission_without_a_key_is_not(self):
        for definition in ({"type": "t", "steps": {}}, "type: t"):
            server = Server(self, None)
            with self.assertRaises(Unavailable):
                Client(server.url).submit(definition)
            self.assertEqual(len(server.requests), 1)

    def test_wait_bears_an_outage(self):
        server = Server(self, None, problem("unavailable", "503 Away"), answer(b'{"phase":"running"}'), answer(b'{"phase":"parked"}'))
        self.assertEqual(Client(server.url).wait("k")["phase"], "parked")
        server = Server(self, answer(b'{"phase":"running"}'))
        with self.assertRaises(TimeoutError):
            Client(server.url).wait("k", timeout=0)

    def waited(self, *answers, **options):
        """Waits on a clock of its own; answers are (how long it takes, what a call returns or raises). Returns the
        job, how long it took, and for how long each call was to wait."""
        now, waits, script = [0.0], [], list(answers)

        def pass_time(s):
            now[0] += s

        def wait_once(_, ref, wait):
            waits.append(wait)
            took, result = script.pop(0)
            pass_time(took)
            if isinstance(result, Exception):
                raise result
            return result

        with mock.patch("perdure.client.time", mock.Mock(monotonic=lambda: now[0], sleep=pass_time)), \
                mock.patch.object(Client, "_wait_once", wait_once):
            try:
                return Client("http://h").wait("k", **options), now[0], waits
            except Exception as e:
                return e, now[0], waits

    def test_an_outage_counts_from_its_begin(self):  # F009
        away, rests, runs = Unavailable("unavailable", "away"), {"phase": "parked"}, {"phase": "running"}
        job, _, _ = self.waited((59, away), (30, away), (20, away), (0, rests))
        self.assertEqual(job, rests)
        last = Unavailable("unavailable", "last of all")
        e, _, _ = self.waited((59, away), (30, away), (31, last))
        self.assertIs(e, last)
        # What stands between gives each long poll up: as long as the server is there, that is no outage.
        job, _, waits = self.waited(*[(60, away), (0, runs)] * 5, (0, rests))
        self.assertEqual((job, waits[:3]), (rests, [60, 0, 60]))

    def test_an_outage_does_not_outlast_the_timeout(self):
        away = Unavailable("unavailable", "away", status=503, retry_after=30.0)
        e, took, _ = self.waited((4, away), (0, away), timeout=5)
        self.assertIsInstance(e, TimeoutError)
        self.assertEqual(took, 5)

    def test_what_is_no_outage_ends_a_wait(self):
        stranger = Unavailable("unavailable", "answered 404, which is not Perdure's", status=404)
        e, took, _ = self.waited((0, stranger))
        self.assertIs(e, stranger)
        self.assertEqual(took, 0)

    # Streams of events.

    def events(self, *parts, end=True):
        """An answer of events, in chunks; without its end, it breaks off."""
        body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + (b"0\r\n\r\n" if end else b"")
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + body

    def job_event(self, phase, **more):
        return b"event: job\ndata: " + to_json({"phase": phase, **more}) + b"\n\n"

    REST = b"event: rest\ndata: {}\n\n"

    def followed(self, *answers):
        server = Server(self, *answers)
        with mock.patch("perdure.client.SILENCE", 0.5), mock.patch("perdure.client.Client._sleep", lambda self, s: None):
            return [job["phase"] for job in Client(server.url).follow("k")], [r[0][1] for r in server.requests]

    def test_a_job_is_followed(self):
        event = self.job_event("settled")
        pieces = [b": a comment\n\n", self.job_event("running")[:9], self.job_event("running")[9:],
                  event[:-1].replace(b"\n", b"\r\n") + b"\r\n", b"event: unknown\ndata: 1\n\n", self.REST]
        self.assertEqual(self.followed(self.events(*pieces)), (["running", "settled"], ["/v1/jobs/k/events"]))

    def test_data_of_several_lines_is_one_value(self):
        self.assertEqual(self.followed(self.events(b'event: job\ndata: {"phase":\ndata: "settled"}\n\n' + self.REST))[0], ["settled"])

    def test_a_stream_that_breaks_is_opened_again(self):
        running, settled = self.job_event("running"), self.job_event("settled")
        for broken in (self.events(running), self.events(running, settled[:20], end=False), self.events(running, settled[:20])):
            # The server closes, answers that it is away, and is silent, before it is there again.
            phases, asked = self.followed(broken + b"", None, problem("unavailable", "503 Away"), "silence", self.events(settled, self.REST))
            self.assertEqual((phases, len(asked)), (["running", "settled"], 5))

    def test_a_stream_that_breaks_after_the_job_is_at_rest_has_said_all(self):
        self.assertEqual(self.followed(self.events(self.job_event("parked"), end=False), None), (["parked"], ["/v1/jobs/k/events"]))

    def test_streams_that_are_refused(self):
        refusal = b"event: problem\ndata: " + to_json({"code": "conflict", "detail": "d"}) + b"\n\n"
        for reply, kind in ((problem("notFound", "404 None"), NotFound), (self.events(refusal), Conflict),
                            (answer(b"<html>", "404 None", "text/html"), Unavailable)):
            self.assertRaises(kind, self.followed, reply)
        with mock.patch("perdure.client.OUTAGE", 0.0), self.assertRaisesRegex(Unavailable, "instead of events"):
            self.followed(answer(), answer(), answer())

    def test_many_go_in_several_calls(self):
        results = [to_json({"results": [{"id": "j"}] * n}) for n in (1000, 500)]
        server = Server(self, *[answer(r) for r in results])
        self.assertEqual(len(Client(server.url).submit_all([{"key": str(i)} for i in range(1500)], {"type": "t"})), 1500)
        self.assertEqual(len(server.requests), 2)


if __name__ == "__main__":
    unittest.main()
