"""What tools are mostly called where it is not known which client they are of: recorded sessions of many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proctor.policies.stream.tools import Tool, tool

from . import amp, claude, codex
from .frameworks import MOSTLY, both

_OF_ONE_CLIENT: Final = (tool("web_fetch", "fetch", url="$.prompt"),)


def _tools() -> Iterator[Tool]:
    """What tools of a name mostly are, and those of clients whose name stands for one act in all of them."""
    by_name: dict[str, list[Tool]] = {}
    for each in (*claude.TOOLS, *codex.TOOLS, *amp.TOOLS, *_OF_ONE_CLIENT):
        by_name.setdefault(each.name.casefold(), []).append(each)
    usual = {each.name.casefold(): each for each in MOSTLY}
    for name, alike in by_name.items():
        first = alike[0]
        one_act = all((each.acts, each.acts_where) == (first.acts, first.acts_where) for each in alike)
        if one_act and (first.acts or first.acts_where) and name != "bash":
            for other in (*alike[1:], *([usual[name]] if name in usual else ())):
                first = both(first, other)
            usual[name] = first
    yield from usual.values()


TOOLS: Final = tuple(_tools())
