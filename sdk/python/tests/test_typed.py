"""The types that inputs are read into and outputs are written from."""

import dataclasses
import datetime
import decimal
import enum
import json
import typing
import unittest
import uuid
from typing import Any, Dict, List, Literal, Mapping, NewType, Optional, Sequence, Set, Tuple, TypedDict, Union

from perdure import Agent, Client, Rejected, Run
from perdure.agent import report_of
from perdure.connection import to_json


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Loose(TypedDict):
    anything: int


Sku = NewType("Sku", str)


@dataclasses.dataclass
class Place:
    lat: float
    lon: float = 0


@dataclasses.dataclass
class All:
    at: Optional[datetime.datetime] = None
    on: Optional[datetime.date] = None
    price: Optional[decimal.Decimal] = None
    id: Optional[uuid.UUID] = None
    color: Color = Color.RED
    size: Size = Size.SMALL
    mode: Literal["fast", 1] = "fast"
    pair: Optional[Tuple[int, Place]] = None
    many: Tuple[datetime.date, ...] = ()
    bare: tuple = ()
    either: Union[int, datetime.date, None] = None
    places: Dict[str, Place] = dataclasses.field(default_factory=dict)
    dates: Dict[datetime.date, int] = dataclasses.field(default_factory=dict)
    steps: Sequence[Color] = ()
    loose: Optional[Loose] = None
    sku: Sku = Sku("")
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    listing: list = dataclasses.field(default_factory=list)
    any: Any = None
    children: List["All"] = dataclasses.field(default_factory=list)


def reading(hint):
    """A function that reads an input of the type, as a handler gets it."""
    agent, got = Agent("a"), []

    def x(input, run):
        got.append(input)

    x.__annotations__ = {"input": hint}
    agent.do("x")(x)

    def read(value):
        agent.execute(Run(action="x", input=value))
        return got.pop()

    return read


class TestInputs(unittest.TestCase):
    def test_values_are_converted(self):
        read = reading(All)
        utc = datetime.timezone.utc
        for field, value, want in (
            ("at", "2026-11-21T04:49:20Z", datetime.datetime(2026, 11, 21, 4, 49, 20, tzinfo=utc)),
            ("at", "2026-11-21T04:49:20.123456789+00:00", datetime.datetime(2026, 11, 21, 4, 49, 20, 123456, tzinfo=utc)),
            ("at", "2026-11-21 04:49", datetime.datetime(2026, 11, 21, 4, 49)),
            ("at", None, None),
            ("on", "2026-11-21", datetime.date(2026, 11, 21)),
            ("price", 12.1, decimal.Decimal("12.1")), ("price", "12.10", decimal.Decimal("12.10")), ("price", 3, decimal.Decimal(3)),
            ("id", "12345678-1234-5678-1234-567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
            ("color", "blue", Color.BLUE), ("size", 2, Size.LARGE),
            ("mode", 1, 1),
            ("pair", [1, {"lat": 2}], (1, Place(2))), ("many", ["2026-01-02"] * 3, (datetime.date(2026, 1, 2),) * 3),
            ("many", [], ()), ("bare", [1, "a"], (1, "a")),
            ("either", 3, 3), ("either", "2026-01-02", datetime.date(2026, 1, 2)),
            ("places", {"a": {"lat": 1.5}}, {"a": Place(1.5)}), ("dates", {"2026-01-02": 1}, {datetime.date(2026, 1, 2): 1}),
            ("steps", ["red"], [Color.RED]), ("loose", {"other": 1}, {"other": 1}), ("sku", "tea", "tea"), ("labels", {"a": "b"}, {"a": "b"}),
            ("listing", [1], [1]), ("any", {"a": [1]}, {"a": [1]}), ("children", [{"color": "blue"}], [All(color=Color.BLUE)]),
        ):
            with self.subTest(field=field, value=value):
                got = getattr(read({field: value}), field)
                self.assertEqual((got, type(got)), (want, type(want)))

    def test_values_that_do_not_fit_are_rejected(self):
        read = reading(All)
        for field, value, words in (
            ("at", 5, "at: not a time such as"), ("at", "tomorrow", "at: not a time"), ("at", "2026-13-01T00:00:00Z", "at: not a time"),
            ("on", "2026-11-21T00:00:00Z", "on: not a date such as 2026-11-21"), ("on", "2026-02-30", "on: not a date"),
            ("price", True, "price: not a number, or a text such as"), ("price", "ten", "price: not a number"), ("price", "NaN", "price: not a number"),
            ("id", "1", "id: not a UUID"), ("id", 1, "id: not a UUID"),
            ("color", "RED", 'color: not one of "red", "blue"'), ("color", ["red"], "color: not one of"), ("size", True, "size: not one of 1, 2"),
            ("mode", "slow", 'mode: not one of "fast", 1'), ("mode", True, "mode: not one of"),
            ("pair", [1], "pair: a list of 1, not of 2"), ("pair", "ab", "pair: not a list"), ("pair", [1, {"lat": "x"}], r"pair\[1\].lat: not a number"),
            ("many", ["2026-01-02", 1], r"many\[1\]: not a date"), ("either", "x", "either: not an integer; nor either: not a date"),
            ("places", {"a": {}}, "places.a.lat: missing"), ("dates", {"x": 1}, "dates.x: not a date"),
            ("steps", ["green"], r"steps\[0\]: not one of"), ("loose", 1, "loose: not an object"), ("sku", 1, "sku: not a text"),
            ("labels", {"a": 1}, "labels.a: not a text"), ("listing", {}, "listing: not a list"),
            ("children", [{"size": 9}], r"children\[0\].size: not one of"),
        ):
            with self.subTest(field=field, value=value), self.assertRaisesRegex(Rejected, "^" + words) as caught:
                read({field: value})
            self.assertEqual((caught.exception.code, caught.exception.no_effect), ("input", True))

    def test_an_argument_may_have_such_a_type_itself(self):
        for hint, value, want in ((datetime.date, "2026-01-02", datetime.date(2026, 1, 2)), (List[Color], ["red"], [Color.RED]),
                                  (Tuple[int, int], [1, 2], (1, 2)), (Optional[uuid.UUID], None, None)):
            self.assertEqual(reading(hint)(value), want)
        with self.assertRaisesRegex(Rejected, "^not a date"):
            reading(datetime.date)(1)

    def test_types_that_no_json_can_be_read_into_are_refused_when_the_handler_is_registered(self):
        class Other:
            pass

        class Odd(enum.Enum):
            PAIR = (1, 2)

        for hint, words in (
            (Set[str], r"It.f: Set\[str\] cannot be read from JSON: JSON has no sets: use list"), (frozenset, "It.f: frozenset .* no sets"),
            (bytes, "It.f: bytes .* use str"), (datetime.timedelta, "It.f: timedelta .* use float for seconds, or str"),
            (Other, "It.f: Other cannot be read from JSON: use str, int"), (Optional[Other], "It.f: Other"), (List[Other], "It.f: Other"),
            (Tuple[int, Other], "It.f: Other"), (Dict[str, Other], "It.f: Other"), (Dict[int, str], "It.f: the keys of an object of JSON are texts"),
            (Odd, "It.f: Odd.PAIR has no value of JSON"), ("Nowhere", r"It.f: the annotation 'Nowhere' cannot be resolved \(name 'Nowhere'"),
            (typing.Callable[[int], int], "It.f: Callable"), (complex, "It.f: complex"),
        ):
            inner = dataclasses.make_dataclass("It", [("fine", int), ("f", hint)])
            for model in (inner, List[inner], dataclasses.make_dataclass("Outer", [("it", inner)])):
                with self.subTest(hint=hint, model=model), self.assertRaisesRegex(TypeError, "^" + words):
                    reading(model)
        agent = Agent("a")

        def x(input: Other, run):
            pass

        with self.assertRaisesRegex(TypeError, "^input: Other cannot be read"):
            agent.do("x")(x)
        self.assertEqual(agent.actions, [], "what was refused is not registered")

    def test_an_annotation_that_cannot_be_resolved_does_not_hide_the_others(self):
        agent, seen = Agent("a"), []

        @agent.do("x")
        def x(input: Place, run: "Nowhere"):  # noqa: F821
            seen.append(input)

        agent.execute(Run(action="x", input={"lat": 1}))
        self.assertEqual(seen, [Place(1)])

    def test_a_step_without_with(self):
        with self.assertRaisesRegex(Rejected, "^the step has no `with`; Place needs lat$"):
            reading(Place)(None)
        with self.assertRaisesRegex(Rejected, "^the step has no `with`; write `with: {}`$"):
            reading(All)(None)

        class Field:
            def is_required(self):
                return True

        class Model:
            model_fields = {"to": Field()}

            @classmethod
            def model_validate(cls, value):
                raise ValueError("no object")

        with self.assertRaisesRegex(Rejected, "^the step has no `with`; Model needs to$"):
            reading(Model)(None)
        with self.assertRaisesRegex(Rejected, "^no object$"):
            reading(Model)(3)

    def test_dataclasses_of_pydantic_read_their_fields_themselves(self):
        @dataclasses.dataclass
        class Checked:
            tags: Set[str]
            __pydantic_validator__ = None

            def __post_init__(self):
                self.tags = set(self.tags)

        self.assertEqual(reading(Checked)({"tags": ["a", "a"]}), Checked({"a"}))


class TestValuesThatAreWritten(unittest.TestCase):
    def test_what_is_written_is_read_again(self):
        value = All(at=datetime.datetime(2026, 11, 21, 4, 49, tzinfo=datetime.timezone.utc), on=datetime.date(2026, 1, 2),
                    price=decimal.Decimal("12.10"), id=uuid.UUID(int=7), color=Color.BLUE, size=Size.LARGE, pair=(1, Place(2)),
                    many=(datetime.date(2026, 1, 2),), steps=[], children=[All()])
        plain = json.loads(to_json(value))
        self.assertEqual((plain["at"], plain["on"], plain["price"], plain["color"], plain["size"]),
                         ("2026-11-21T04:49:00+00:00", "2026-01-02", "12.10", "blue", 2))
        read = reading(All)(plain)
        self.assertEqual((read, read.children), (dataclasses.replace(value, children=read.children), [All(steps=[])]))

    def test_what_is_no_json_is_refused_with_its_place(self):
        cycle = {}
        cycle["again"] = [cycle]
        deep = []
        for _ in range(100_000):
            deep = [deep]
        for value, kind, words in (
            ({"steps": {"a": {"with": {"at": {1}}}}}, TypeError, r"/steps/a/with/at: a value of type set is no JSON \(JSON has no sets: use list\)"),
            ({"a/b~": [1, object()]}, TypeError, "/a~1b~0/1: a value of type object is no JSON"),
            ({"x": datetime.timedelta(seconds=30)}, TypeError, '/x: a timedelta is no JSON: write "30s" for a duration'),
            ({"x": datetime.timedelta(seconds=1.5)}, TypeError, '/x: .* write "1500ms"'),
            ({"x": Place(float("nan"))}, ValueError, "/x/lat: nan is no number of JSON"), ({"x": decimal.Decimal("inf")}, ValueError, "/x: Infinity"),
            ({"x": ["\ud800"]}, ValueError, "/x/0: a text with half a surrogate pair"), ({"x": {(1, 2): 3}}, TypeError, r"/x: the key \(1, 2\) is no text"),
            (cycle, ValueError, "/again/0: a value that contains itself"), ({"x": Place}, TypeError, "/x: the class Place is no JSON"),
            ({"x": deep}, ValueError, "nested too deeply"), (b"x", TypeError, r"a value of type bytes is no JSON \(JSON has no bytes: use str\)"),
        ):
            with self.subTest(words), self.assertRaisesRegex(kind, "^" + words):
                to_json(value)

    def test_submissions_say_where_a_value_is_no_json(self):
        with Client("http://127.0.0.1:9") as client:
            with self.assertRaisesRegex(TypeError, '^/steps/a/completeWithin: a timedelta is no JSON: write "30s"'):
                client.submit({"type": "t", "steps": {"a": {"agent": "x", "completeWithin": datetime.timedelta(seconds=30)}}}, key="k")
            with self.assertRaisesRegex(TypeError, "^/jobs/1/input: a value of type set is no JSON"):
                client.submit_all([{"key": "a"}, {"key": "b", "input": {1}}], {"type": "t", "steps": {}})
            with self.assertRaisesRegex(TypeError, "^/definition/type: a value of type set"):
                client.submit_all([{"key": "a"}], {"type": {1}})
            with self.assertRaisesRegex(TypeError, "^/input/at: a value of type set"):
                client.edit("j", "s", input={"at": {1}})

    def test_outputs_say_where_a_value_is_no_json(self):
        report = report_of(Run(), {"rooms": [{1, 2}]}, None)
        self.assertEqual(report["error"], {"code": "outputInvalid", "message": "/rooms/0: a value of type set is no JSON (JSON has no sets: use list)"})
        with self.assertRaisesRegex(TypeError, "^/at: a value of type set"):
            Run().progress({"at": {1}})


if __name__ == "__main__":
    unittest.main()
