"""Every exported name says what it holds or takes, in which unit, and what it raises."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from page_facts.docstrings import described, described_fields

PACKAGES = ("", ".policies", ".supervisor", ".adapters", ".adapters.cluster", ".adapters.kit", ".adapters.stores")
MADE_HERE = frozenset(
    [
        "CompiledPolicy",
        "Findings",
        "FleetHandle",
        "LoopGate",
        "Monitor",
        "RunHandle",
        "Subscription",
        "TaskProvider",
        "ToolRefused",
    ]
)
"""What no caller makes: given by a function, or raised."""
COUNTED = re.compile(
    r"\b(USD|UTC|bytes?|calls?|characters|column|digests?|epoch|exit code|fraction|how (many|often|much)|"
    r"id|line|milliseconds|ms|number|position|processes|responses?|runs?|seconds?|seqs?|s|times|tokens?|turns?|unit)\b"
    r"|so (many|often)|as (many|much)|JSON-RPC",
    re.I,
)
"""What a figure counts: a word of it is in what is said of the figure, or its name ends so."""
UNIT_IN_NAME = re.compile(r"(_s|_ms|_usd|_tokens|_bytes|_mtok)$")


def exported() -> Iterator[tuple[str, Any]]:
    """Every exported name once, with what it stands for."""
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


def arguments(thing: Any) -> dict[str, inspect.Parameter]:
    """What a caller gives: by name; the object itself is not given."""
    if inspect.isclass(thing) and "__init__" not in vars(thing):
        return {}
    return {name: each for name, each in inspect.signature(thing).parameters.items() if name != "self"}


@pytest.mark.parametrize("name", [*NAMES, *METHODS])
def test_every_name_has_a_sentence(name: str) -> None:
    """Its contract: a sentence that begins with a capital and ends."""
    text = inspect.cleandoc((NAMES.get(name) or METHODS[name]).__doc__ or "")

    assert re.match(r"[A-Z`]", text), name
    assert text.split("\n\n")[0].rstrip().endswith((".", ":", "`")), text


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_is_explained(name: str) -> None:
    """In the record's `Attributes`, or in those of what it is made of."""
    explained = described_fields(RECORDS[name])

    assert [field.name for field in msgspec.structs.fields(RECORDS[name]) if field.name not in explained] == []


@pytest.mark.parametrize(
    "name", [name for name in [*FUNCTIONS, *CLASSES] if name.rpartition(".")[2] not in MADE_HERE]
)
def test_every_argument_is_explained(name: str) -> None:
    """In `Args`, or by name in the text; a lone one is what the sentence is about, a protocol's are no caller's."""
    thing = NAMES[name]
    text = inspect.cleandoc(thing.__doc__ or "")
    given = arguments(thing)
    if len(given) == 1 or getattr(thing, "_is_protocol", False):
        return

    assert [each for each in given if each not in described(thing) and f"`{each}`" not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_unit(name: str) -> None:
    """Seconds, ms, USD, tokens, calls: in what is said of it, or in its name."""
    thing = NAMES[name]
    if name in RECORDS:
        texts = described_fields(thing)
        kinds = {field.name: str(field.type) for field in msgspec.structs.fields(thing)}
    else:
        texts = described(thing)
        kinds = {each: str(parameter.annotation) for each, parameter in arguments(thing).items()}
    figures = [each for each, kind in kinds.items() if re.search(r"\b(int|float|Natural|Positive|Amount)\b", kind)]

    assert [
        each
        for each in figures
        if each in texts and not UNIT_IN_NAME.search(each) and not COUNTED.search(texts[each])
    ] == []


@pytest.mark.parametrize("name", METHODS)
def test_every_error_is_documented(name: str) -> None:
    """Whatever the body raises by name is in the docstring."""
    function = inspect.unwrap(METHODS[name])
    if not hasattr(function, "__code__"):
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        call.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(call := node.exc, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id[0].isupper()
    }

    assert [error for error in sorted(raised) if error not in (function.__doc__ or "")] == []
