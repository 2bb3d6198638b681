"""What docstrings say: their first words, their arguments, their fields."""

from __future__ import annotations

import inspect
from typing import Any

from griffe import Docstring, DocstringSectionKind, Parser


def text_of(thing: Any) -> str:
    """The text of a docstring before its sections; nothing where there is none of its own."""
    return "\n\n".join(
        section.value for section in _sections(thing) if section.kind is DocstringSectionKind.text
    ).strip()


def described(thing: Any) -> dict[str, str]:
    """What a docstring says of each argument or field by name."""
    kinds = (DocstringSectionKind.parameters, DocstringSectionKind.attributes)
    return {
        each.name: each.description for section in _sections(thing) if section.kind in kinds for each in section.value
    }


def described_fields(cls: type) -> dict[str, str]:
    """What a class and those it is made of say of their fields."""
    return {name: text for base in reversed(cls.__mro__) for name, text in described(base).items()}


def _sections(thing: Any) -> Any:
    own = thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__
    return Docstring(inspect.cleandoc(own or "")).parse(Parser.google, warnings=False)
