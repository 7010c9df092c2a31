"""Inputs and outputs as the types that a handler's annotations name: dataclasses, models of pydantic, and types with an
obvious JSON form, such as datetime. Annotations are checked when a handler is registered, values when a run is executed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import json
import math
import re
import types
import typing
import uuid
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

from .errors import Rejected

Reader = Callable[[Any], Any]

MAX_CLASSES_KEPT = 1024    # whose resolved annotations are kept
MAX_CHOICES_NAMED = 10     # of an Enum or Literal, in an error message
MAX_PLACE = 200            # characters of a place in an error message

_PLAIN = {str: "a text", int: "an integer", float: "a number", bool: "true or false", type(None): "null", list: "a list",
          dict: "an object", tuple: "a list"}
_CONVERTED = (datetime.datetime, datetime.date, decimal.Decimal, uuid.UUID)
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable, collections.abc.Collection)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_INSTEAD: Dict[Any, str] = {
    set: "JSON has no sets: use list", frozenset: "JSON has no sets: use list",
    datetime.timedelta: "JSON has no durations: use float for seconds, or str",
    bytes: "JSON has no bytes: use str", bytearray: "JSON has no bytes: use str",
}
_READABLE = ("use str, int, float, bool, datetime, date, Decimal, UUID, an Enum, Literal, Optional, Union, list, dict, tuple, a dataclass, "
             "a model of pydantic, or Any")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(\.\d+)?(?:([Zz])|([+-]\d\d):?(\d\d))?")


class _Misfit(ValueError):
    """A value that does not fit its annotation, and where it is, from the argument on."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}" if where else what)


def readers(f: Any, undo: bool) -> Dict[str, Reader]:
    """How the arguments `input` and, of an undo, `output` are read: by the annotations of the first one or two parameters
    of f. An argument whose annotation names nothing that is converted is passed as it is. TypeError for an annotation that
    no JSON can be read into.

    An undo ignores unknown fields: its values may have been written by another version of the program.
    """
    found: Dict[str, Reader] = {}
    for argument, hint in zip(("input", "output") if undo else ("input",), _parameters(f)):
        _check(hint, argument, set())
        if _is_read(hint):
            found[argument] = functools.partial(_read, argument, hint, undo)
    return found


def _resolve(annotation: Any, globals: Dict[str, Any]) -> Any:
    """An annotation, which may be text, as a type. Raises what its evaluation raises."""
    return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": annotation}), globals)["it"]


def _parameters(f: Any) -> List[Any]:
    """The annotations of the parameters that are not bound yet, in their order. Any for one that cannot be resolved at run
    time, because its name is imported for type checkers alone."""
    function = f
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function if inspect.isroutine(function) else getattr(function, "__call__", function))
    globals = getattr(function, "__globals__", {})
    try:
        names, annotations = list(inspect.signature(f).parameters), dict(getattr(function, "__annotations__", {}))
    except (TypeError, ValueError, NameError):
        return []
    hints = []
    for name in names:
        try:
            hints.append(_resolve(annotations.get(name, Any), globals))
        except Exception:
            hints.append(Any)
    return hints


@functools.lru_cache(maxsize=MAX_CLASSES_KEPT)
def _fields(hint: Any) -> Dict[str, Tuple[dataclasses.Field[Any], Any]]:
    """The fields of a dataclass with their types. TypeError for an annotation that cannot be resolved."""
    fields = {f.name: f for f in dataclasses.fields(hint) if f.init}
    try:
        hints = typing.get_type_hints(hint)
    except Exception:
        hints = {}
        for f in fields.values():
            owner = next(c for c in hint.__mro__ if f.name in getattr(c, "__dict__", {}).get("__annotations__", {}))
            try:
                hints[f.name] = _resolve(f.type, vars(inspect.getmodule(owner)) if inspect.getmodule(owner) else {})
            except Exception as e:
                raise TypeError(f"{hint.__name__}.{f.name}: the annotation {f.type!r} cannot be resolved ({e}): "
                                "import or define its names at the top of the module, not for type checkers alone") from None
    return {name: (f, hints.get(name, Any)) for name, f in fields.items()}


def _check(hint: Any, where: str, seen: Set[Any]) -> None:
    """TypeError if no JSON can be read into the type. where: the argument, or the class and field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object, ...) or isinstance(hint, typing.TypeVar) or hint in _PLAIN or hint in _CONVERTED:
        return
    if hint in _LISTS or hint in _OBJECTS or _is_typed_dict(hint) or _validates_itself(hint):
        return
    if hasattr(hint, "__supertype__"):  # NewType
        return _check(hint.__supertype__, where, seen)
    if _is_dataclass(hint):
        if hint not in seen:
            seen.add(hint)
            for name, (_, of) in _fields(hint).items():
                _check(of, f"{hint.__name__}.{name}", seen)
        return
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        for member in hint:
            if not isinstance(member.value, (str, int, float, type(None))):
                raise TypeError(f"{where}: {hint.__name__}.{member.name} has no value of JSON: use texts or numbers")
        return
    if origin is typing.Literal:
        return
    if origin in _OBJECTS:
        key = arguments[0] if arguments else str
        if not (key in (str, Any, *_CONVERTED) or isinstance(key, (type, typing.TypeVar)) and _is_text_enum(key)
                or typing.get_origin(key) is typing.Literal or hasattr(key, "__supertype__")):
            raise TypeError(f"{where}: the keys of an object of JSON are texts: use Dict[str, …]")
        return _check(arguments[1] if len(arguments) > 1 else Any, where, seen)
    if _is_union(hint) or origin in _LISTS or origin is tuple:
        for argument in arguments:
            if argument != ():  # tuple[()] before Python 3.11
                _check(argument, where, seen)
        return
    instead = _INSTEAD.get(origin or hint, _READABLE)
    raise TypeError(f"{where}: {_name(hint)} cannot be read from JSON: {instead}")


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is Union or type(hint).__name__ == "UnionType"


def _is_text_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, enum.Enum) and all(isinstance(m.value, str) for m in hint)


def _is_typed_dict(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__total__")


def _is_dataclass(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _validates_itself(hint: Any) -> bool:
    """Whether the type is pydantic's: a model, or a dataclass that pydantic has made."""
    return isinstance(hint, type) and (hasattr(hint, "model_validate") or hasattr(hint, "parse_obj")
                                       or hasattr(hint, "__pydantic_validator__") or hasattr(hint, "__pydantic_model__"))


def _is_read(hint: Any) -> bool:
    """Whether values of the type are not those that JSON has already."""
    if _is_dataclass(hint) or _validates_itself(hint) or hint in _CONVERTED or hint is tuple:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and not arguments and issubclass(hint, enum.Enum) or origin in (typing.Literal, tuple):
        return True
    return _is_read(hint.__supertype__) if hasattr(hint, "__supertype__") else any(_is_read(a) for a in arguments)


def _read(argument: str, hint: Any, lenient: bool, value: Any) -> Any:
    if value is None and argument == "output":
        return None  # the do run never reported
    try:
        if value is None and _is_dataclass(hint):
            raise _Misfit("", "not an object")
        return _build(hint, value, "", lenient)
    except ValueError as e:  # pydantic's errors are such, too
        said = str(e)
        if value is None and (_is_dataclass(hint) or _validates_itself(hint)):
            needed = _needed(hint)
            said = "the step has no `with`; " + (f"{hint.__name__} needs {', '.join(needed)}" if needed else "write `with: {}`")
        raise Rejected(said, code=argument, no_effect=True) from e


def _needed(hint: Any) -> List[str]:
    """The fields without a default of a dataclass or a model of pydantic."""
    if _is_dataclass(hint):
        return [f.name for f in dataclasses.fields(hint) if f.init and _is_required(f)]
    if hasattr(hint, "model_fields"):
        return [name for name, f in hint.model_fields.items() if f.is_required()]
    return [name for name, f in getattr(hint, "__fields__", {}).items() if f.required]


def _is_required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _build(hint: Any, value: Any, where: str, lenient: bool) -> Any:
    """The value as the type has it. where: its place in the argument; empty for the argument itself."""
    if hasattr(hint, "__supertype__"):
        return _build(hint.__supertype__, value, where, lenient)
    if _validates_itself(hint) or _is_dataclass(hint):
        return value if isinstance(value, hint) else _model(hint, value, where, lenient)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(hint):
        return _either(arguments, value, where, lenient)
    if origin is typing.Literal:
        return _literal(arguments, value, where)
    if hint is tuple or origin is tuple:
        return _tuple(arguments, value, where, lenient)
    if hint in _LISTS or origin in _LISTS:
        if not isinstance(value, list):
            raise _Misfit(where, "not a list")
        of = arguments[0] if arguments else Any
        return [_build(of, item, f"{where}[{i}]", lenient) for i, item in enumerate(value)]
    if hint in _OBJECTS or origin in _OBJECTS or _is_typed_dict(hint):
        if not isinstance(value, dict):
            raise _Misfit(where, "not an object")
        key, of = arguments if len(arguments) == 2 else (Any, Any)
        return {_build(key, k, _field(where, k), lenient): _build(of, v, _field(where, k), lenient) for k, v in value.items()}
    if isinstance(hint, type):
        return _scalar(hint, value, where)
    return value


def _field(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if issubclass(hint, enum.Enum):
        return _enum(hint, value, where)
    if hint in _CONVERTED:
        convert: Callable[[Any], Any] = {datetime.datetime: _datetime, datetime.date: _date, decimal.Decimal: _decimal, uuid.UUID: _uuid}[hint]
        try:
            return value if type(value) is hint else convert(value)
        except (ValueError, ArithmeticError):
            wanted = {datetime.datetime: "a time such as 2026-11-21T04:49:20Z", datetime.date: "a date such as 2026-11-21",
                      decimal.Decimal: "a number, or a text such as 12.50", uuid.UUID: "a UUID"}[hint]
            raise _Misfit(where, f"not {wanted}") from None
    if hint in _PLAIN:
        fits = isinstance(value, (int, float) if hint is float else hint) and (hint is bool or not isinstance(value, bool))
        if not fits:
            raise _Misfit(where, f"not {_PLAIN[hint]}")
    return value


def _datetime(value: Any) -> datetime.datetime:
    m = _DATETIME.fullmatch(value) if isinstance(value, str) else None
    if m is None:
        raise ValueError
    day, minute, second, fraction, utc, hours, minutes = m.groups()
    zone = "+00:00" if utc else f"{hours}:{minutes}" if hours else ""
    return datetime.datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{(fraction or '.0')[1:7].ljust(6, '0')}{zone}")


def _date(value: Any) -> datetime.date:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError
    return datetime.date.fromisoformat(value)


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = decimal.Decimal(str(value))
    if not number.is_finite():
        raise ValueError
    return number


def _uuid(value: Any) -> uuid.UUID:
    if not isinstance(value, str):
        raise ValueError
    return uuid.UUID(value)


def _enum(hint: Any, value: Any, where: str) -> Any:
    if isinstance(value, hint):
        return value
    try:
        if isinstance(value, (str, int, float, type(None))):
            member = hint(value)
            if isinstance(member.value, bool) == isinstance(value, bool):  # true is no 1
                return member
    except ValueError:
        pass
    raise _Misfit(where, f"not one of {_choices([m.value for m in hint])}")


def _literal(choices: Tuple[Any, ...], value: Any, where: str) -> Any:
    for choice in choices:
        plain_choice = choice.value if isinstance(choice, enum.Enum) else choice
        if value is choice or type(value) is type(plain_choice) and value == plain_choice:
            return choice
    raise _Misfit(where, f"not one of {_choices([c.value if isinstance(c, enum.Enum) else c for c in choices])}")


def _choices(values: List[Any]) -> str:
    named = [json.dumps(v, ensure_ascii=False, default=str) for v in values[:MAX_CHOICES_NAMED]]
    return ", ".join([*named, *([f"{len(values) - len(named)} more"] if len(values) > len(named) else [])])


def _tuple(arguments: Tuple[Any, ...], value: Any, where: str, lenient: bool) -> Tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _Misfit(where, "not a list")
    if arguments == ((),):  # tuple[()] before Python 3.11
        arguments = ()
    if len(arguments) == 2 and arguments[1] is ...:
        arguments = (arguments[0],) * len(value)
    elif arguments and len(value) != len(arguments):
        raise _Misfit(where, f"a list of {len(value)}, not of {len(arguments)}")
    return tuple(_build(of, item, f"{where}[{i}]", lenient) for i, (of, item) in enumerate(zip(arguments or (Any,) * len(value), value)))


def _either(choices: Tuple[Any, ...], value: Any, where: str, lenient: bool) -> Any:
    """The first of the types that the value fits."""
    if value is None and type(None) in choices:
        return None
    misfits: List[str] = []
    for choice in choices:
        if choice is not type(None):
            try:
                return _build(choice, value, where, lenient)
            except ValueError as e:
                misfits.append(str(e))
    raise _Misfit("", "; nor ".join(misfits) or "not null")


def _model(hint: Any, value: Any, where: str, lenient: bool) -> Any:
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if hasattr(hint, "parse_obj"):
        return hint.parse_obj(value)
    if not isinstance(value, dict):
        raise _Misfit(where, "not an object")
    fields = {f.name: f for f in dataclasses.fields(hint) if f.init}
    for name in value:
        if name not in fields and not lenient:
            raise _Misfit(_field(where, name), f"unknown field; {hint.__name__} has {', '.join(fields) or 'none'}")
    for name, f in fields.items():
        if name not in value and _is_required(f):
            raise _Misfit(_field(where, name), "missing")
    if _validates_itself(hint):
        return hint(**{name: v for name, v in value.items() if name in fields})
    hints = {name: of for name, (_, of) in _fields(hint).items()}
    return hint(**{name: _build(hints[name], v, _field(where, name), lenient) for name, v in value.items() if name in fields})


def plain(value: Any) -> Any:
    """The JSON form of a value that is not JSON: of a dataclass, a model of pydantic, a datetime or date (ISO 8601), a
    Decimal or UUID (as text), or an Enum (its value). TypeError for anything else."""
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} is no JSON")
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    dump: Optional[Callable[..., Any]] = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if hasattr(value, "parse_obj"):
        return json.loads(value.json())
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no number of JSON")
        return str(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        raise TypeError(f'a timedelta is no JSON: write "{_as_duration(value)}" for a duration, or a number of seconds')
    instead = _INSTEAD.get(type(value), "")
    raise TypeError(f"a value of type {type(value).__name__} is no JSON" + (f" ({instead})" if instead else ""))


def _as_duration(value: datetime.timedelta) -> str:
    ms = round(value.total_seconds() * 1000)
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


def fault(value: Any) -> Optional[Tuple[str, str]]:
    """Where a value is no JSON, as a JSON Pointer, and what is there. None if no such place is found."""
    try:
        found = _fault(value, "", set())
    except RecursionError:
        return "", "nested too deeply"
    if found is not None and len(found[0]) > MAX_PLACE:
        return found[0][:MAX_PLACE] + "…", found[1]
    return found


def _fault(value: Any, pointer: str, around: Set[int]) -> Optional[Tuple[str, str]]:
    if isinstance(value, str):
        return None if _is_unicode(value) else (pointer, "a text with half a surrogate pair is no JSON")
    if isinstance(value, float):
        return None if math.isfinite(value) else (pointer, f"{value} is no number of JSON")
    if value is None or isinstance(value, int):
        return None
    if id(value) in around:
        return pointer, "a value that contains itself is no JSON"
    parts: List[Tuple[Any, Any]]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int, float, type(None))) or isinstance(key, str) and not _is_unicode(key):
                return pointer, f"the key {key!r} is no text"
        parts = list(value.items())
    elif isinstance(value, (list, tuple)):
        parts = list(enumerate(value))
    else:
        try:
            return _fault(plain(value), pointer, {*around, id(value)})
        except (TypeError, ValueError) as e:
            return pointer, str(e)
    around = {*around, id(value)}
    for name, part in parts:
        found = _fault(part, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}", around)
        if found is not None:
            return found
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
        return True
    except UnicodeEncodeError:
        return False
