"""Inputs and outputs as the types that a handler's annotations name: dataclasses, and models of pydantic."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import typing
from typing import Any, Callable, Dict, Optional, Union

from .errors import Rejected

Reader = Callable[[Any], Any]

_PLAIN = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


class _Misfit(ValueError):
    pass


def readers(f: Any, undo: bool) -> Dict[str, Reader]:
    """How the arguments `input` and, of an undo, `output` are read: by the annotations of the first one or two parameters
    of f. An argument without a type that is read here is passed as it is.

    An undo ignores unknown fields: its values may have been written by another version of the program.
    """
    found: Dict[str, Reader] = {}
    for argument, hint in zip(("input", "output") if undo else ("input",), _parameters(f)):
        if _is_read(hint):
            found[argument] = functools.partial(_read, argument, hint, undo)
    return found


def _hints(f: Any) -> Dict[str, Any]:
    """The annotations of f. Some cannot be resolved at run time: names that are imported for type checkers alone."""
    try:
        return typing.get_type_hints(f)
    except Exception:
        return {}


def _parameters(f: Any) -> typing.List[Any]:
    """The annotations of the parameters that are not bound yet, in their order."""
    function = f
    while isinstance(function, functools.partial):
        function = function.func
    hints = _hints(function if inspect.isroutine(function) else getattr(function, "__call__", function))
    try:
        return [hints.get(name, Any) for name in inspect.signature(f).parameters]
    except (TypeError, ValueError):
        return []


def _is_read(hint: Any) -> bool:
    return _is_model(hint) or any(_is_model(a) for a in typing.get_args(hint))


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "model_validate") or hasattr(hint, "parse_obj"))


def _read(argument: str, hint: Any, lenient: bool, value: Any) -> Any:
    if value is None and argument == "output":
        return None  # the do run never reported
    try:
        return _build(hint, value, argument, lenient)
    except ValueError as e:  # pydantic's errors are such, too
        said = str(e) if isinstance(e, _Misfit) else f"{argument}: {e}"
        raise Rejected(said, code=argument, no_effect=True) from e


def _build(hint: Any, value: Any, where: str, lenient: bool) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_model(hint):
        return value if isinstance(value, hint) else _model(hint, value, where, lenient)
    if origin is Union or type(hint).__name__ == "UnionType":
        others = [a for a in arguments if a is not type(None)]
        if value is None and len(others) < len(arguments) or len(others) != 1:
            return value
        return _build(others[0], value, where, lenient)
    if origin is list and arguments:
        if not isinstance(value, list):
            raise _Misfit(f"{where}: not a list")
        return [_build(arguments[0], item, f"{where}[{i}]", lenient) for i, item in enumerate(value)]
    if origin is dict and len(arguments) == 2:
        if not isinstance(value, dict):
            raise _Misfit(f"{where}: not an object")
        return {k: _build(arguments[1], v, f"{where}.{k}", lenient) for k, v in value.items()}
    if isinstance(hint, type) and hint in _PLAIN:
        fits = isinstance(value, (int, float) if hint is float else hint) and (hint is bool or not isinstance(value, bool))
        if not fits:
            raise _Misfit(f"{where}: not {_PLAIN[hint]}")
    return value


def _model(hint: Any, value: Any, where: str, lenient: bool) -> Any:
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if hasattr(hint, "parse_obj"):
        return hint.parse_obj(value)
    if not isinstance(value, dict):
        raise _Misfit(f"{where}: not an object")
    fields = {f.name: f for f in dataclasses.fields(hint) if f.init}
    for name in value:
        if name not in fields and not lenient:
            raise _Misfit(f"{where}.{name}: unknown field; {hint.__name__} has {', '.join(fields) or 'none'}")
    for name, f in fields.items():
        if name not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise _Misfit(f"{where}.{name}: missing")
    hints = _hints(hint)
    return hint(**{name: _build(hints.get(name, Any), v, f"{where}.{name}", lenient) for name, v in value.items() if name in fields})


def plain(value: Any) -> Any:
    """A dataclass or a model of pydantic as values of JSON. TypeError for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    dump: Optional[Callable[..., Any]] = getattr(value, "model_dump", None) if not isinstance(value, type) else None
    if dump is not None:
        return dump(mode="json")
    if hasattr(value, "parse_obj") and not isinstance(value, type):
        return json.loads(value.json())
    raise TypeError(f"a {type(value).__name__} is no JSON")
