"""Secrets in inputs: resolved where the agent runs, and removed from what a run reports.

A definition refers to a secret with ${secret.NAME}, and a run says at which places of its input it does: `secrets`, a list
of JSON Pointers. The references there are replaced, and no others, because an input also has values of other origin.
"""

from __future__ import annotations

import base64
import errno
import html
import json
import os
import re
import stat
import urllib.parse
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .connection import to_json
from .errors import NoEffect, Rejected

VARIABLE = "PERDURE_SECRET_"
MAX_BYTES = 64 << 10
MAX_TOGETHER = 4 * MAX_BYTES  # of the secrets of one run: what it reports is searched for each of them in many forms
MIN_REDACTED = 4  # bytes: a shorter value occurs by chance
ESCAPE_LEVELS = 3  # how many times a form may be quoted again
MAX_ESCAPED = 8 << 10  # bytes of a value above which it is only once
MAX_LINES = 256   # lines of one value that count for themselves
MIN_LINE = 16     # bytes from which on each line of a value is redacted for itself
REFERENCE = re.compile(r"\$\{secret\.([A-Z][A-Z0-9_]{0,127})\}")


class Missing(Exception):
    """A secret that is not there, or not usable. It has neither the value nor a path in its text."""


class Secrets:
    """Where a host finds secrets: the files of a directory, and environment variables. They are read for each run."""

    def __init__(self, directory: Optional[str], environ: Mapping[str, str] = os.environ) -> None:
        if directory is not None and not os.path.isdir(directory):
            raise ValueError(f"secrets_dir: there is no directory {directory}")
        self._directory, self._environ = directory, environ

    def get(self, name: str) -> str:
        """The value of a secret, or Missing."""
        if self._directory is not None:
            text = self._read(name)
            if text is not None:
                return text
        value = self._environ.get(VARIABLE + name)
        if value is not None:
            return _checked(name, value.encode("utf-8", "surrogateescape"))
        if self._directory is not None:
            raise Missing(f"secret {name}: where the agent runs there is no file {name} in the directory of secrets, "
                          f"and the environment variable {VARIABLE}{name} is not set")
        raise Missing(f"secret {name}: where the agent runs, the environment variable {VARIABLE}{name} is not set")

    def _read(self, name: str) -> Optional[str]:
        """The text of a file without one line break at its end; None if there is no file. Symbolic links are followed."""
        assert self._directory is not None
        path = os.path.join(self._directory, name)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe could block
                raise Missing(f"secret {name}: its file cannot be used: it is not a regular file")
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 3)
        except FileNotFoundError:
            return None
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE):
                raise
            raise Missing(f"secret {name}: its file cannot be used: {e.strerror}") from None
        if data.endswith(b"\n"):
            data = data[:-2] if data.endswith(b"\r\n") else data[:-1]
        return _checked(name, data)

    def resolve(self, value: Any, pointers: Sequence[str]) -> Tuple[Any, Optional[Redactor]]:
        """An input with the values of its secrets, and what removes them from the report. A missing secret is a fault of the
        configuration, which trying again does not mend: the run is rejected."""
        if not pointers:
            return value, None
        values: Dict[str, str] = {}
        missing: Dict[str, str] = {}

        def value_of(name: str) -> str:
            if name not in values and name not in missing:
                try:
                    values[name] = self.get(name)
                    if sum(len(text.encode()) for text in values.values()) > MAX_TOGETHER:
                        raise Missing(f"secret {name}: the secrets of this input have more than {MAX_TOGETHER} bytes together")
                except Missing as e:
                    missing[name] = str(e)
                except OSError as e:
                    raise NoEffect(f"secret {name}: {e.strerror}", code="secretMissing") from None
            return values.get(name, "")

        filled = fill(value, pointers, value_of)
        if missing:
            raise Rejected("; ".join(missing.values()), code="secretMissing", no_effect=True)
        return filled, redactor(values)


def _checked(name: str, data: bytes) -> str:
    if not data:
        raise Missing(f"secret {name} is empty where the agent runs")
    if len(data) > MAX_BYTES:
        raise Missing(f"secret {name} has more than {MAX_BYTES} bytes where the agent runs")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Missing(f"secret {name} is not UTF-8 where the agent runs") from None


def fill(value: Any, pointers: Sequence[str], value_of: Callable[[str], str]) -> Any:
    """value with the references in the strings at the pointers replaced. The values are not read again."""
    for pointer in pointers:
        if pointer and not pointer.startswith("/"):
            raise Rejected(f"{pointer!r} is not a JSON Pointer", code="secretMissing", no_effect=True)
        parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        value = _fill(value, parts, pointer, value_of)
    return value


def _fill(value: Any, parts: List[str], pointer: str, value_of: Callable[[str], str]) -> Any:
    if not parts:
        if isinstance(value, str):
            return REFERENCE.sub(lambda match: value_of(match.group(1)), value)
    elif isinstance(value, dict) and parts[0] in value:
        return {**value, parts[0]: _fill(value[parts[0]], parts[1:], pointer, value_of)}
    elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", parts[0]) and int(parts[0]) < len(value):
        at = int(parts[0])
        return [*value[:at], _fill(value[at], parts[1:], pointer, value_of), *value[at + 1:]]
    raise Rejected(f"the input has no text at {pointer}", code="secretMissing", no_effect=True)


class Redactor:
    """Replaces the values of secrets by [secret NAME]: as they are, and as messages and echoed requests usually have them."""

    def __init__(self, marks: Dict[str, str]) -> None:
        self._marks = marks
        self._any = re.compile("|".join(re.escape(text) for text in sorted(marks, key=len, reverse=True)))

    def text(self, text: str) -> str:
        """text without the values."""
        return self._any.sub(lambda match: self._marks[match.group()], text)

    def value(self, value: Any) -> Any:
        """A value of JSON without the values of secrets. A number that has one becomes a string."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.value(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            shown = self.text(json.dumps(value))
            return value if shown == json.dumps(value) else shown
        return value

    def output(self, value: Any) -> Any:
        """What a handler returned, without the values. TypeError or ValueError as to_json."""
        return self.value(json.loads(to_json(value)))


def redactor(values: Mapping[str, str]) -> Optional[Redactor]:
    """A redactor of secrets by name; None if there is nothing to redact."""
    marks: Dict[str, str] = {}
    for name, value in values.items():
        if len(value.encode()) < MIN_REDACTED:
            continue
        for form in _forms(value):
            if len(form.encode()) >= MIN_REDACTED:
                marks.setdefault(form, f"[secret {name}]")
    return Redactor(marks) if marks else None


def _forms(value: str) -> List[str]:
    """A value as it is, and as JSON, programs, URLs, HTML and base64 have it. Long lines count for themselves."""
    lines = [line.strip() for line in value.splitlines()]
    texts = [value, value.strip(), *[line for line in lines if len(line.encode()) >= MIN_LINE][:MAX_LINES]]
    forms = list(texts)
    for text in texts:
        forms += [json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1],
                  text.replace("'", "\\'"), text.replace("'", "'\\''"), text.replace("'", "'\"'\"'")]  # also in a shell
        forms += _percent_forms(text) + _html_forms(text)
    newest = forms
    for _ in range(ESCAPE_LEVELS if len(value.encode()) <= MAX_ESCAPED else 1):  # messages quote messages: JSON in a string of JSON has each backslash twice
        newest = [escaped for form in newest for escaped in (json.dumps(form, ensure_ascii=False)[1:-1],) if escaped != form]
        forms = forms + newest
    return forms + _base64_forms(value.encode())


def _percent_forms(text: str) -> List[str]:
    """A text as URLs and forms have it. Encoders differ in the characters that they leave, and in the case of the digits."""
    forms = []
    for left in ("", "/", "!'()*", "!'()*;,/?:@&=+$#", "$&+=:@"):  # RFC 3986, paths, encodeURIComponent, encodeURI, Go's paths
        form = urllib.parse.quote(text, safe=left)
        forms += [form, form.replace("%20", "+")]
    return forms + [re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in forms]


def _html_forms(text: str) -> List[str]:
    """A text as HTML and XML have it."""
    escaped = html.escape(text, quote=False)
    return [escaped.replace('"', double).replace("'", single)
            for double in ('"', "&quot;", "&#34;", "&#x22;") for single in ("'", "&apos;", "&#39;", "&#x27;")]


def _base64_forms(data: bytes) -> List[str]:
    """Data in base64, alone and within a longer text: there, it begins at one of three places of a group of four characters,
    and the characters at its ends depend on its neighbours, too."""
    forms = []
    for marks in (b"+/", b"-_"):
        whole = base64.b64encode(data, marks).decode()
        forms += [whole, whole.rstrip("=")]
        for before in range(3):
            shifted = b"\0" * before + data
            forms.append(base64.b64encode(shifted, marks).decode()[(8 * before + 5) // 6:8 * len(shifted) // 6])
    return forms
