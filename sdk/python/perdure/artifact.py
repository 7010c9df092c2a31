"""Values that are stored as artifacts, because they are too large for an input or output. A reference takes their place:
{"$artifact": "sha256:…", "size": 1048576, "type": "application/json"}."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, Dict

from .connection import to_json
from .errors import Invalid, Unavailable

OFFLOAD = 256 << 10     # a larger value is stored as an artifact
MAX_INLINE = 1 << 20    # of an input or output: an object stays one as long as it fits
MEDIA = "application/json"

Store = Callable[[bytes], Dict[str, Any]]  # stores the JSON of a value, and returns the reference to it


def reference(data: bytes) -> Dict[str, Any]:
    """The reference to the artifact that is the JSON of a value."""
    return {"$artifact": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data), "type": MEDIA}


def is_reference(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$artifact"), str) and isinstance(value.get("size"), int)


def offload(value: Any, store: Store) -> Any:
    """An input or output, of which values of more than 256 KiB are stored as artifacts: as far inside of it as possible.
    An object stays one, so that expressions can read its members, unless what is left of it is over 1 MiB."""
    data = to_json(value)
    if len(data) <= OFFLOAD:
        return value
    value = _inner(json.loads(data), store)
    data = to_json(value)
    return store(data) if len(data) > (MAX_INLINE if isinstance(value, dict) else OFFLOAD) else value


def _inner(value: Any, store: Store) -> Any:
    """The value, with the members offloaded that are too large."""
    if isinstance(value, dict):
        return {name: _offload(v, store) for name, v in value.items()}
    if isinstance(value, list):
        return [_offload(v, store) for v in value]
    return value


def _offload(value: Any, store: Store) -> Any:
    if isinstance(value, (bool, int, float, type(None))) or len(to_json(value)) <= OFFLOAD:
        return value
    value = _inner(value, store)
    data = to_json(value)
    return store(data) if len(data) > OFFLOAD else value


def checked(ref: Dict[str, Any], data: bytes) -> Any:
    """The value of an artifact that was read: what its JSON says, or its bytes if it is of another type."""
    if len(data) != ref["size"] or "sha256:" + hashlib.sha256(data).hexdigest() != ref["$artifact"]:
        raise Unavailable("unavailable", f"the server has sent other bytes than those of the artifact {ref['$artifact']}")
    if ref.get("type") != MEDIA:
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Invalid("invalid", f"the artifact {ref['$artifact']} is of the type {MEDIA}, and cannot be read as JSON: {e}") from e
