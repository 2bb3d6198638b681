"""Converts a tree of nodes to a record of any type, and reports every problem."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ..language.conditions import Condition
from ..language.operators import SIGNS
from ..limits import BUDGETS, LIMITS, spellings
from ..rules.rule import Rule
from ..values.model_base import Base, Record
from . import schema
from .rewriting import as_written
from .tree import ListNode, MapNode, Node, ProblemReport, Scalar, TextSpan, describe, join

INVALID: Any = object()
"""Stands for what could not be converted; its problems are reported."""

_COMPARISON = re.compile(rf"\s*(\$[\w.\[\]*]*)\s*({'|'.join(SIGNS)})\s*(.+?)\s*")
_GROUPED = re.compile(r"[0-9]{1,3}(_[0-9]{3}){1,6}")


def own_keys(cls: type[Base]) -> list[str]:
    """The required keys of a record, which identify it among the records of a union."""
    return [field.key for field in schema.fields_of(cls).values() if field.required]


def place_of(node: Node, where: tuple[str | int, ...]) -> tuple[TextSpan, str]:
    """The span of a part of a node, or of its closest known parent."""
    for part in where:
        child = None
        if isinstance(node, MapNode) and isinstance(part, str):
            child = node.entries.get(part, node.entries.get(part.rstrip("_")))
        elif isinstance(node, ListNode) and isinstance(part, int) and part < len(node.items):
            child = node.items[part]
        if child is None:
            break
        node = child
    return node.span, node.path


def fits(option: schema.Shape, node: Node) -> bool:
    """Whether a node is of the kind that a shape expects, whatever its content."""
    if isinstance(node, MapNode):
        return isinstance(option, schema.OfRecord | schema.MapOf | schema.AnyRule | schema.Open)
    if isinstance(node, ListNode):
        return isinstance(option, schema.Items | schema.Open)
    if isinstance(option, schema.Choice):
        return any(type(node.value) is type(value) for value in option.values)
    if isinstance(option, schema.Text):
        return isinstance(node.value, str)
    if isinstance(option, schema.Boolean):
        return isinstance(node.value, bool)
    if isinstance(option, schema.Number):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return isinstance(option, schema.Open) or (isinstance(option, schema.PythonCode) and callable(node.value))


def ungrouped(shape: schema.Shape, node: Node) -> Node:
    """The number in a text like `8_000`, where a number is expected."""
    options = options_of(shape)
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, str) or not _GROUPED.fullmatch(value):
        return node
    if any(isinstance(option, schema.Text | schema.Choice | schema.Open) for option in options):
        return node
    takes_numbers = any(isinstance(option, schema.Number) for option in options)
    return Scalar(int(value), node.span, node.path) if takes_numbers else node


def options_of(shape: schema.Shape) -> tuple[schema.Shape, ...]:
    """The shapes that a value may have."""
    return shape.options if isinstance(shape, schema.OneOf) else (shape,)


def record_of(shape: schema.Shape, text: str) -> str:
    """A text as the record that is expected in its place: a comparison as a condition, any other as the one required
    key of the only record, or its main key; empty if there is none, or if another text that may stand there is meant.
    """
    options = options_of(shape)
    compared = _COMPARISON.fullmatch(text)
    if compared and any(isinstance(option, schema.OfRecord) and option.cls is Condition for option in options):
        return f"{{path: {compared[1]}, {SIGNS[compared[2]]}: {compared[3]}}}"
    records = [option.cls for option in options if isinstance(option, schema.OfRecord)]
    keys = [own_keys(cls) or [cls.main_key] for cls in records]
    choices = [str(value) for option in options if isinstance(option, schema.Choice) for value in option.values]
    texts = any(isinstance(option, schema.Text) for option in options) or schema.did_you_mean(text, choices)
    key = keys[0][0] if len(keys) == 1 and len(keys[0]) == 1 and not texts else ""
    return f"{{{key}: {text}}}" if key else ""


def spelling_hint(shape: schema.Shape, node: Node) -> str:
    """A suggestion, if only quotes or brackets are wrong, or a key is left out."""
    options = options_of(shape)
    value = node.value if isinstance(node, Scalar) else None
    number = next((option for option in options if isinstance(option, schema.Number)), None)
    if isinstance(value, str) and number is not None:
        return _number_in(value.strip(), number)
    one = "{...}" if isinstance(node, MapNode) else value[:80] if isinstance(value, str) else ""
    for option in options:
        if one and isinstance(option, schema.Items):
            return f"put it in brackets: `[{(value and record_of(option.item, one)) or one}]`"
    if one and (record := record_of(shape, one)):
        return f"write `{record}`"
    text = any(isinstance(option, schema.Text) for option in options)
    return "put it in quotes" if text and isinstance(value, bool | int | float) else ""


def _number_in(text: str, shape: schema.Number) -> str:
    """How the number is written that a text like `"3"`, `$3` or `80%` stands for; empty if none is clear."""
    bare = text.removeprefix("$").removesuffix("%")
    if not bare.replace(".", "", 1).isdecimal():
        return ""
    if bare == text:
        return "remove the quotes"
    if text == f"{bare}%" and shape.le == 1:
        return f"write it as a fraction: `{float(bare) / 100:g}`"
    return f"write `{bare}`" if text.removeprefix("$") == bare else ""


def number_complaint(shape: schema.Number, value: float) -> str:
    """The error in a number; empty if there is none."""
    if not math.isfinite(value):
        return "a number must be finite"
    if abs(value) > schema.LARGEST and isinstance(value, int):
        return "a whole number must fit in 64 bits"
    if shape.whole and value != int(value):
        return f"expected a whole number, got the number {value}"
    if shape.ge is not None and value < shape.ge:
        return f"must be at least {shape.ge:g}, got {value}"
    if shape.gt is not None and value <= shape.gt:
        return f"must be more than {shape.gt:g}, got {value}"
    if shape.le is not None and value > shape.le:
        return f"must be at most {shape.le:g}, got {value}"
    if shape.lt is not None and value >= shape.lt:
        return f"must be less than {shape.lt:g}, got {value}"
    return ""


def placeholder(shape: schema.Shape) -> Any:
    """A harmless value for a broken field, so that the fields beside it can still be checked."""
    if isinstance(shape, schema.OneOf):
        return placeholder(shape.options[0])
    if isinstance(shape, schema.Text):
        return "$"  # a name, a path and a regular expression alike
    if isinstance(shape, schema.Number):
        return schema.LARGEST  # a bound that no other number exceeds
    if isinstance(shape, schema.Items):
        item = placeholder(shape.item)
        return INVALID if item is INVALID else (item, item)
    return shape.values[0] if isinstance(shape, schema.Choice) else INVALID


class Converter:
    """Converts nodes to values; reports every problem and continues with the rest."""

    def __init__(self, report: ProblemReport, rules: Mapping[str, type[Rule]], *, only_records: bool = False) -> None:
        self._report = report
        self._rules = rules
        self._only_records = only_records

    def record(self, cls: type[Base], node: MapNode) -> Any:
        """Convert a mapping to a record, or to INVALID."""
        if self._only_records and not issubclass(node.record or dict, cls):
            got = f"a `{node.record.__name__}`" if node.record else "a mapping"
            self._report.add(f"expected a `{cls.__name__}`, got {got}", node.span, node.path)
            return INVALID
        fields = schema.fields_of(cls)
        tag_field = cls.__struct_config__.tag_field
        values: dict[str, Any] = {}
        broken: set[str] = set()
        for key, child in node.entries.items():
            if key == tag_field:
                continue
            field = fields.get(key)
            if field is None:
                self._unknown_key(cls, key, node)
            elif (value := self.value(field.shape, child)) is INVALID:
                broken.add(key)
            else:
                values[field.name] = value
        for field in fields.values():
            if field.required and field.key not in node.entries:
                self._report.add(f"`{field.key}` is missing", node.span, node.path)
                broken.add(field.key)
        return self._settled(cls, node, values, broken)

    def _settled(self, cls: type[Base], node: MapNode, values: dict[str, Any], broken: set[str]) -> Any:
        """Build the record and report its own issues; of one with a broken or an unknown field, only those of its
        sound fields.
        """
        fields = schema.fields_of(cls)
        for key in broken:
            field = fields[key]
            if field.required:
                if not issubclass(cls, Rule):
                    return INVALID
                values[field.name] = placeholder(field.shape)
                if values[field.name] is INVALID:
                    return INVALID
        record = cls(**values)
        sound = not broken and node.entries.keys() <= {*fields, cls.__struct_config__.tag_field}
        for where, message in record.problems() if isinstance(record, Record) else ():
            message = as_written(message, node)
            if sound or (where and where[0] in node.entries and where[0] not in broken):
                span, path = place_of(node, where)
                self._report.add(message, span, path)
        return INVALID if broken else record

    def _unknown_key(self, cls: type[Base], key: str, node: MapNode) -> None:
        keys = [
            *(
                written
                for written, plain in spellings({**LIMITS, **BUDGETS}).items()
                if plain in schema.fields_of(cls)
            ),
            *schema.fields_of(cls),
        ]
        hint = schema.did_you_mean(key, keys) or f"expected one of: {', '.join(keys)}"
        self._report.add(f"unknown key `{key}`", node.key_span(key), join(node.path, key), hint)

    def value(self, shape: schema.Shape, node: Node) -> Any:
        """Convert a node to a value of a shape, or to INVALID."""
        node = ungrouped(shape, node)
        if isinstance(shape, schema.Open):
            return self._open(node)
        if isinstance(shape, schema.OneOf):
            return self._one_of(shape, node)
        if isinstance(node, MapNode):
            return self._from_mapping(shape, node)
        if isinstance(node, ListNode):
            return self._list(shape, node) if isinstance(shape, schema.Items) else self._wrong(shape, node)
        if isinstance(shape, schema.Text):
            return self._text(shape, node)
        if isinstance(shape, schema.Number):
            return self._number(shape, node)
        if isinstance(shape, schema.Choice):
            return self._choice(shape, node, shape)
        if isinstance(shape, schema.Boolean) and isinstance(node.value, bool):
            return node.value
        if isinstance(shape, schema.PythonCode) and callable(node.value):
            return node.value
        return self._wrong(shape, node)

    def _wrong(self, shape: schema.Shape, node: Node, hint: str = "") -> Any:
        message = f"expected {schema.wanted(shape)}, got {describe(node)}"
        self._report.add(message, node.span, node.path, hint or spelling_hint(shape, node))
        return INVALID

    def _from_mapping(self, shape: schema.Shape, node: MapNode) -> Any:
        if isinstance(shape, schema.AnyRule):
            return self._rule(node)
        if isinstance(shape, schema.OfRecord):
            return self.record(shape.cls, node)
        if isinstance(shape, schema.MapOf):
            return self._table(shape, node)
        return self._wrong(shape, node)

    def _rule(self, node: MapNode) -> Any:
        if node.record is not None and issubclass(node.record, Rule):
            return self.record(node.record, node)
        if self._only_records:
            return self.record(Rule, node)
        tag = node.entries.get("type")
        if tag is None:
            if not self._misspelt(["type"], node):
                alone = next(iter(node.entries), "") if len(node.entries) == 1 else ""
                hint = f"write `type: {alone}`, and its fields beside it" if alone in self._rules else ""
                self._report.add(
                    "`type` is missing", node.span, node.path, hint or f"one of: {', '.join(self._rules)}"
                )
            return INVALID
        name = tag.value if isinstance(tag, Scalar) else None
        if not isinstance(name, str):
            return self._wrong(schema.Text(), tag)
        if name not in self._rules:
            python = "a `check` is written in Python, not in a file" if name == "check" else ""
            hint = python or schema.did_you_mean(name, self._rules) or f"one of: {', '.join(self._rules)}"
            self._report.add(f"unknown rule type `{name}`", tag.span, tag.path, hint)
            return INVALID
        return self.record(self._rules[name], node)

    def _table(self, shape: schema.MapOf, node: MapNode) -> Any:
        free = isinstance(shape.value, schema.Open)  # metadata, which nothing is compared with
        values = {
            key: self._open(child, free=True) if free else self.value(shape.value, child)
            for key, child in node.entries.items()
        }
        for key in node.entries:
            if shape.filled_keys and not key.strip():
                self._report.add("a name must not be empty", node.key_span(key), node.path)
                values[key] = INVALID
        return INVALID if any(value is INVALID for value in values.values()) else values

    def _list(self, shape: schema.Items, node: ListNode) -> Any:
        if shape.filled and not node.items:
            self._report.add("must not be empty", node.span, node.path, "leave it out if nothing is meant")
            return INVALID
        values = tuple(self.value(shape.item, child) for child in node.items)
        return INVALID if any(value is INVALID for value in values) else values

    def _text(self, shape: schema.Text, node: Scalar) -> Any:
        if not isinstance(node.value, str):
            return self._wrong(shape, node)
        if shape.filled and not node.value.strip():
            self._report.add("must not be empty", node.span, node.path)
            return INVALID
        return node.value

    def _number(self, shape: schema.Number, node: Scalar) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._wrong(shape, node)
        complaint = number_complaint(shape, value)
        if complaint:
            self._report.add(complaint, node.span, node.path)
            return INVALID
        return int(value) if shape.whole else value

    def _choice(self, shape: schema.Choice, node: Scalar, all_options: schema.Shape) -> Any:
        for value in shape.values:
            if node.value == value and isinstance(node.value, bool) == isinstance(value, bool):
                return value
        if isinstance(node.value, str) and node.value in map(str, shape.values):
            return self._wrong(shape, node, "remove the quotes")
        hint = schema.did_you_mean(node.value, map(str, shape.values)) if isinstance(node.value, str) else ""
        return self._wrong(all_options, node, hint)

    def _one_of(self, shape: schema.OneOf, node: Node) -> Any:
        fitting = [option for option in shape.options if fits(option, node)]
        if not fitting:
            return self._wrong(shape, node)
        if isinstance(fitting[0], schema.Choice) and isinstance(node, Scalar):
            return self._choice(fitting[0], node, shape)
        if len(fitting) == 1 or not isinstance(node, MapNode):
            return self.value(fitting[0], node)
        return self._one_record(fitting, node)

    def _one_record(self, options: list[schema.Shape], node: MapNode) -> Any:
        """Convert to the record of a union whose own key the mapping has."""
        records = [option.cls for option in options if isinstance(option, schema.OfRecord)]
        if node.record in records:
            return self.record(node.record, node)
        own = {cls: own_keys(cls) for cls in records}
        given = {cls: [key for key in keys if key in node.entries] for cls, keys in own.items()}
        named = [cls for cls in records if given[cls]]
        if len(named) == 1:
            return self.record(named[0], node)
        if named:
            keys = " and ".join(f"`{given[cls][0]}`" for cls in named)
            self._report.add(f"{keys} exclude each other", node.span, node.path, "write them one by one")
            return INVALID
        names = [keys[0] for keys in own.values() if keys]
        if not self._misspelt(names, node):
            choice = schema.either(f"`{name}`" for name in names)
            self._report.add(f"expected one of the keys {choice}", node.span, node.path)
        return INVALID

    def _misspelt(self, names: list[str], node: MapNode) -> bool:
        """Report a misspelt key that would have identified the record."""
        for key in node.entries:
            if hint := schema.did_you_mean(key, names):
                self._report.add(f"unknown key `{key}`", node.key_span(key), join(node.path, key), hint)
                return True
        return False

    def _open(self, node: Node, *, free: bool = False) -> Any:
        """A value of any JSON type; INVALID, and a problem, where YAML has read something else."""
        if isinstance(node, MapNode):
            values = {key: self._open(child, free=free) for key, child in node.entries.items()}
            return INVALID if any(value is INVALID for value in values.values()) else values
        if isinstance(node, ListNode):
            items = [self._open(child, free=free) for child in node.items]
            return INVALID if any(item is INVALID for item in items) else items
        value = node.value
        if node.is_boolean_elsewhere and not free:
            hint = f"write true or false, or `'{value}'`, as text"
            self._report.add(
                f"`{value}` is a text here, and a boolean in other versions of YAML", node.span, node.path, hint
            )
            return INVALID
        if isinstance(value, int | float) and not isinstance(value, bool):
            complaint = number_complaint(schema.Number(), value)
            if complaint:
                self._report.add(complaint, node.span, node.path)
                return INVALID
        elif value is not None and not isinstance(value, bool | str):
            hint = "write it in quotes, as text"
            self._report.add(f"{describe(node)} is not a JSON value", node.span, node.path, hint)
            return INVALID
        return value
