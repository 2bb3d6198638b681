"""Every exported name has a docstring with its contract, its fields or arguments, their units, and its errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec
from page_facts.docstrings import described, described_fields

PACKAGES = ("", ".policies", ".supervisor", ".adapters", ".adapters.fleet", ".adapters.kit", ".adapters.stores")
MADE_HERE = frozenset(
    [
        *("CompiledPolicy", "Findings", "FleetHandle", "LoopGate", "Monitor", "RunHandle", "Subscription"),
        *("TaskProvider", "ToolRefused"),
    ]
)
"""Classes that no caller creates: returned by a function, or raised."""
COUNTED = re.compile(
    r"\b(USD|UTC|bytes?|calls?|characters|column|digests?|epoch|exit code|fraction|how (many|often|much)|"
    r"id|line|milliseconds|ms|number|position|processes|responses?|runs?|seconds?|seqs?|s|times|tokens?|turns?|unit)\b"
    r"|so (many|often)|as (many|much)|JSON-RPC",
    re.I,
)
"""The unit of a figure: one of these words is in its description, or its name ends so."""
UNIT_IN_NAME = re.compile(r"(_s|_ms|_usd|_tokens|_bytes|_mtok)$")


def exported() -> Iterator[tuple[str, Any]]:
    """Every exported name once, with its object."""
    seen: set[int] = set()
    for package in PACKAGES:
        module = importlib.import_module(f"proctor{package}")
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not inspect.ismodule(thing) and id(thing) not in seen:
                seen.add(id(thing))
                yield f"{module.__name__}.{name}", thing


NAMES = dict(exported())
RECORDS = {
    name: thing for name, thing in NAMES.items() if inspect.isclass(thing) and issubclass(thing, msgspec.Struct)
}
CLASSES = {name: thing for name, thing in NAMES.items() if inspect.isclass(thing) and name not in RECORDS}
FUNCTIONS = {name: thing for name, thing in NAMES.items() if not inspect.isclass(thing)}


def methods() -> Iterator[tuple[str, Any]]:
    """The public functions, and the public methods of the public classes."""
    yield from FUNCTIONS.items()
    for name, cls in [*CLASSES.items(), *RECORDS.items()]:
        for attribute, value in vars(cls).items():
            found = value.fget if isinstance(value, property) else value
            found = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            if inspect.isfunction(found) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", found


METHODS = dict(methods())
PROPERTIES = {
    f"{name}.{attribute}": value
    for name, cls in [*CLASSES.items(), *RECORDS.items()]
    for attribute, value in vars(cls).items()
    if isinstance(value, property) and not attribute.startswith("_")
}
"""Read as modules, as only then overridden docstrings are found."""


def arguments(thing: Any) -> dict[str, inspect.Parameter]:
    """The arguments that a caller passes, by name, without the object itself."""
    if inspect.isclass(thing) and "__init__" not in vars(thing):
        return {}
    return {name: each for name, each in inspect.signature(thing).parameters.items() if name != "self"}


def test_every_name_has_a_sentence() -> None:
    """Its contract, its own or an inherited one: a sentence with a capital and a full stop."""
    texts = {name: inspect.getdoc(thing) or "" for name, thing in {**NAMES, **METHODS, **PROPERTIES}.items()}

    assert {name: text for name, text in texts.items() if not re.match(r"[A-Z`]", text)} == {}
    firsts = {name: text.split("\n\n")[0].rstrip() for name, text in texts.items()}
    assert {name: text for name, text in firsts.items() if not text.endswith((".", ":", "`"))} == {}


def test_every_field_is_explained() -> None:
    """In the record's `Attributes`, or in those of its bases."""
    fields = {(name, field.name) for name, record in RECORDS.items() for field in msgspec.structs.fields(record)}

    assert fields - {(name, field) for name, record in RECORDS.items() for field in described_fields(record)} == set()


def test_every_argument_is_explained() -> None:
    """In `Args`, or by name in the text. A single one is the subject of the sentence; a protocol's are no
    caller's.
    """
    found = set()
    for name in [*FUNCTIONS, *CLASSES]:
        thing, given = NAMES[name], arguments(NAMES[name])
        if name.rpartition(".")[2] in MADE_HERE or len(given) == 1 or getattr(thing, "_is_protocol", False):
            continue
        text = inspect.cleandoc(thing.__doc__ or "")
        found |= {(name, each) for each in given if each not in described(thing) and f"`{each}`" not in text}

    assert found == set()


def test_every_figure_has_its_unit() -> None:
    """Seconds, ms, USD, tokens, calls: in its description, or in its name."""
    found = set()
    for name, thing in NAMES.items():
        if name in RECORDS:
            texts = described_fields(thing)
            kinds = {field.name: str(field.type) for field in msgspec.structs.fields(thing)}
        else:
            texts = described(thing)
            kinds = {each: str(parameter.annotation) for each, parameter in arguments(thing).items()}
        for each, kind in kinds.items():
            is_figure = re.search(r"\b(int|float|Natural|Positive|Amount)\b", kind)
            if is_figure and each in texts and not UNIT_IN_NAME.search(each) and not COUNTED.search(texts[each]):
                found.add((name, each))

    assert found == set()


def test_every_error_is_documented() -> None:
    """Every error that the body raises by name is in the docstring."""
    found = set()
    for name, method in METHODS.items():
        function = inspect.unwrap(method)
        if hasattr(function, "__code__"):
            found |= {(name, error) for error in raised(function) if error not in (function.__doc__ or "")}

    assert found == set()


def raised(function: Any) -> set[str]:
    """The errors that a function's body raises by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        call.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(call := node.exc, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id[0].isupper()
    }
