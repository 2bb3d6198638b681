"""Packages whose names are imported when they are used, so that importing the package imports little."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        names: the public names, with blanks between them, by the module below it that has them.
    """
    module_of = {name: module for module, given in names.items() for name in given.split()}

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module `{package}` has no attribute `{name}`")
        return getattr(importlib.import_module(f".{module}", package), name)

    def names_of() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *module_of})

    return get, names_of
