"""One connection to a server, kept alive between calls."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import time
import urllib.parse
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterator, Mapping, Optional, Tuple

from .errors import Error, Invalid, Unavailable, refusal
from .typed import fault, plain

ANSWER_TIMEOUT = 30.0  # how long a server may take beyond what it was asked to wait
CONNECT_TIMEOUT = 5.0
MAX_IDLE = 60.0        # a connection that was idle for longer is not used again
MAX_ANSWER = 1 << 30   # bytes; of a stream: of one event
MAX_RETRY_AFTER = 60.0


def to_json(value: Any, place: str = "") -> bytes:
    """Compact JSON in UTF-8. TypeError or ValueError for what has no JSON form (a set; NaN, infinities, half surrogates,
    cycles), with the place as a JSON Pointer. place: the pointer of the value itself."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as e:
        found = fault(value)
        if found is None:
            raise
        where, what = place + found[0], found[1]
        raise (TypeError if isinstance(e, TypeError) else ValueError)(f"{where}: {what}" if where else what) from None


def _server(base_url: str) -> Optional[urllib.parse.SplitResult]:
    try:
        url = urllib.parse.urlsplit(base_url)
        url.port  # raises ValueError if the port is not a number
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or "@" in url.netloc:
        return None
    return url


class Certificates:
    """The TLS settings of a client by PEM files: the authorities of the server's certificate, and the client's own
    certificate and key. They are read again for each connection, because certificates are renewed."""

    def __init__(self, server_ca: str, client_cert: str, client_key: str) -> None:
        if bool(client_cert) != bool(client_key):
            raise ValueError("client_cert and client_key: give both")
        self._ca, self._cert, self._key = server_ca, client_cert, client_key
        self._latest = self._read()

    def context(self) -> ssl.SSLContext:
        try:
            self._latest = self._read()
        except Error:
            pass  # half of the files were replaced so far
        return self._latest

    def _read(self) -> ssl.SSLContext:
        name = ""
        try:
            for name in filter(None, (self._ca, self._cert, self._key)):
                with open(name, "rb"):
                    pass  # the errors of ssl do not name the file
            name = self._ca
            context = ssl.create_default_context(cafile=self._ca or None)
            name = f"{self._cert} and {self._key}"
            if self._cert:
                context.load_cert_chain(self._cert, self._key, "")  # an empty password: it must not ask at the terminal
            return context
        except (OSError, ValueError) as e:
            raise Invalid("invalid", f"the certificates cannot be used: {name}: {getattr(e, 'strerror', None) or e}",
                          "the files must be in PEM form") from None


class Interrupted(Exception):
    """The call was interrupted by us: whether the server did what was asked is not known."""


class Stop:
    """Ends what a thread waits for, on behalf of another thread."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._mu = threading.Lock()
        self._connection: Optional[Connection] = None

    @contextmanager
    def guards(self, connection: Connection) -> Generator[None, None, None]:
        """While a call on the connection is under way, set() interrupts it."""
        with self._mu:
            self._connection = connection
        try:
            yield
        finally:
            with self._mu:
                self._connection = None

    def set(self) -> None:
        self.event.set()
        with self._mu:
            if self._connection is not None:
                self._connection.interrupt()

    def sleep(self, s: float) -> None:
        if self.event.wait(s):
            raise Interrupted


class Connection:
    """One call at a time. interrupt() may come from another thread. url: the server, as messages show it.

    headers: called for each request, because a token may be replaced meanwhile.
    """

    _http: Optional[http.client.HTTPConnection] = None

    def __init__(self, base_url: str, headers: Callable[[], Mapping[str, str]],
                 certificates: Optional[Certificates] = None) -> None:
        url = _server(base_url)
        if url is None:  # the URL is not repeated: it may hold a password
            raise ValueError("not the URL of a server: write http://HOST:PORT, without user, password and query")
        self._https = url.scheme == "https"
        if certificates and not self._https:
            raise ValueError("certificates are given, but the URL of the server is not https://HOST:PORT")
        self._certificates = certificates
        self._host, self._port, self._prefix = url.hostname or "", url.port, url.path.rstrip("/")
        self.url = f"{url.scheme}://{url.netloc}{self._prefix}"
        self._headers = headers
        self._used = 0.0
        self._mu = threading.Lock()
        self._sock: Optional[socket.socket] = None  # of an interruptible call under way
        self._interrupted = False

    def ask(self, method: str, path: str, *, query: str = "", body: Optional[bytes] = None,
            media: str = "application/json", headers: Optional[Mapping[str, str]] = None,
            timeout: float = ANSWER_TIMEOUT, safe: bool = False, until: Optional[threading.Event] = None,
            size: Optional[int] = None) -> Tuple[int, Any]:
        """Sends a request and reads its answer as JSON. Returns the status, and the value or None.

        timeout: of the whole call. safe: it may be sent twice. until: once it is set, interrupt() ends the
        call. size: the answer is not JSON but bytes, and no more than these. Raises Error; Unavailable where there was no
        answer.
        """
        target = self._prefix + path + ("?" + query if query else "")
        sent = {**self._headers(), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = media
        deadline = time.monotonic() + timeout
        while True:
            kept = self._open(deadline)
            try:
                return self._once(method, target, body, sent, deadline, until, size)
            except Interrupted:
                raise
            except (OSError, http.client.HTTPException) as e:
                self.close()
                if isinstance(e, (TimeoutError, socket.timeout)) or time.monotonic() >= deadline:
                    raise Unavailable("unavailable", f"{self.url} did not answer within {timeout:.3g} s") from e
                if not (kept and safe):
                    raise self._unreachable(e) from e
                # The server had closed a kept connection: a fresh one tells.

    def _open(self, deadline: float) -> bool:
        """Makes sure that there is a connection; True if it was used before."""
        if self._http is not None:
            idle = time.monotonic() - self._used
            if idle < MAX_IDLE and self._http.sock is not None and not _readable(self._http.sock):
                return True
            self.close()
        timeout = max(0.001, min(CONNECT_TIMEOUT, deadline - time.monotonic()))
        conn = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        if self._https:
            context = self._certificates.context() if self._certificates else None
            conn = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        try:
            conn.connect()
        except OSError as e:
            raise self._unreachable(e) from e
        conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http = conn
        return False

    def _once(self, method: str, target: str, body: Optional[bytes], headers: Mapping[str, str],
              deadline: float, until: Optional[threading.Event], size: Optional[int]) -> Tuple[int, Any]:
        conn = self._http
        assert conn is not None
        sock = conn.sock
        with self._mu:
            self._interrupted = False
            self._sock = sock if until is not None else None
        if until is not None and until.is_set():
            raise Interrupted
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            conn.request(method, target, body, _encoded(headers))
            response = conn.getresponse()
            is_bytes = size is not None and 200 <= response.status < 300
            data = self._read(response, sock, deadline, size if is_bytes and size is not None else MAX_ANSWER)
        except Exception as e:
            with self._mu:
                interrupted, self._sock = self._interrupted, None
            if interrupted:
                self.close()
                raise Interrupted from e
            raise
        with self._mu:
            self._sock = None
        self._used = time.monotonic()
        if response.will_close:
            self.close()
        if is_bytes:
            return response.status, data
        return response.status, self._answer(response, data, headers.get("Content-Type") == "application/yaml")

    def events(self, path: str, *, silence: float, until: Optional[threading.Event] = None) -> Iterator[Tuple[str, bytes]]:
        """Sends a GET and yields the server-sent events of its answer, as pairs of name and data, until the stream ends.

        silence: seconds without a byte after which the server counts as unavailable. The connection serves nothing else
        meanwhile, and is closed at the end.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT
        self._open(deadline)
        conn = self._http
        assert conn is not None
        with self._mu:
            self._interrupted = False
            self._sock = conn.sock if until is not None else None
        try:
            if until is not None and until.is_set():
                raise Interrupted
            conn.sock.settimeout(silence)
            conn.request("GET", self._prefix + path, headers=_encoded({**self._headers(), "Accept": "text/event-stream"}))
            response = conn.getresponse()
            if response.status != 200 or response.getheader("Content-Type", "").split(";")[0].strip() != "text/event-stream":
                value = self._answer(response, self._read(response, conn.sock, deadline), False)
                raise Unavailable("unavailable", f"{self.url} answered {str(value)[:80]} instead of events")
            yield from _events(response)
        except (OSError, http.client.HTTPException) as e:
            if self._interrupted:
                raise Interrupted from e
            if isinstance(e, (TimeoutError, socket.timeout)):
                raise Unavailable("unavailable", f"{self.url} sent nothing for {silence:.3g} s") from e
            raise self._unreachable(e) from e
        finally:
            with self._mu:
                self._sock = None
            self.close()

    def _read(self, response: http.client.HTTPResponse, sock: socket.socket, deadline: float, most: int = MAX_ANSWER) -> bytes:
        parts, size = [], 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if sock.fileno() >= 0:  # closed already where the answer says that it is the last
                sock.settimeout(left)
            part = response.read1(1 << 16)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > most:
                raise http.client.HTTPException(f"an answer of more than {most} bytes")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()  # read1 does not, and the connection would not be used again
        return b"".join(parts)

    def _answer(self, response: http.client.HTTPResponse, data: bytes, text: bool) -> Any:
        kind = response.getheader("Content-Type", "").split(";")[0].strip()
        is_json = kind == "application/json" or kind.endswith("+json")
        value = None
        if is_json:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                is_json = False
        if 200 <= response.status < 300:
            if response.status == 204 or is_json:
                return value
            raise self._stranger(response)
        if isinstance(value, dict) and value.get("code"):
            raise refusal(value, response.status, _retry_after(response), text)
        raise self._stranger(response)

    def _stranger(self, response: http.client.HTTPResponse) -> Error:
        """For answers that no Perdure server gives: something stands between, or listens in its place."""
        to = response.getheader("Location")
        hint = f"it points to {to}: use that" if to and response.status < 400 else "is this the server's URL?"
        return Unavailable("unavailable", f"{self.url} answered {response.status} {response.reason}, which is "
                           "not Perdure's", hint, response.status, retry_after=_retry_after(response))

    def _unreachable(self, e: Exception) -> Error:
        hint = "is a server running there? perdure serve starts one"
        if isinstance(e, ssl.SSLCertVerificationError):
            hint = "is the server's certificate from an authority of your own? name it: server_ca"
        elif isinstance(e, ssl.SSLError) and "ALERT" in str(e).upper() or self._https and isinstance(e, (ConnectionResetError, BrokenPipeError)):
            # The alert may be lost when the server closes the connection.
            hint = "does the server require client certificates? client_cert and client_key"
        return Unavailable("unavailable", f"{self.url} cannot be reached: {e or type(e).__name__}", hint)

    def interrupt(self) -> None:
        """Ends a call that has an `until`. That is set first, so that no call slips through between the two."""
        with self._mu:
            if self._sock is not None:
                self._interrupted = True
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def __del__(self) -> None:
        self.close()


def _encoded(headers: Mapping[str, str]) -> Dict[str, Any]:
    """Headers as UTF-8, which the server expects; http.client would encode text as Latin-1."""
    return {name: value.encode() for name, value in headers.items()}


def _events(response: http.client.HTTPResponse) -> Iterator[Tuple[str, bytes]]:
    """The complete events of a stream. An event that has not ended with an empty line is none."""
    name, data, size = "", b"", 0
    while True:
        line = response.readline(MAX_ANSWER)
        size += len(line)
        if size > MAX_ANSWER:
            raise http.client.HTTPException(f"an event of more than {MAX_ANSWER} bytes")
        if not line.endswith(b"\n"):
            return
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"data":
            data = data + b"\n" + value if data else value
        elif line in (b"\n", b"\r\n"):
            if name:
                yield name, data
            name, data, size = "", b"", 0


def _readable(sock: socket.socket) -> bool:
    """Whether there is something to read where nothing was asked: the other side has closed."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _retry_after(response: http.client.HTTPResponse) -> float:
    text = (response.getheader("Retry-After") or "").strip()
    return min(float(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() else 0.0
