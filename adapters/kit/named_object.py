"""Python objects by name, for options that come as text."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from proctor.supervisor.errors import UsageError


def named_object(given: Any, *, what: str) -> Any:
    """The object itself, or the one that `module:name` stands for; modules of the working directory count.

    Args:
        given: an object, or text of that form.
        what: what it is, for the message.

    Raises:
        UsageError: the text has another form, or there is no such module or name.
    """
    if not isinstance(given, str):
        return given
    module_name, colon, path = given.partition(":")
    if not (module_name and colon and path):
        raise UsageError(f"{what} `{given}` is not of the form `module:name`")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{what} `{given}`: {error}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(f"{what} `{given}`: module `{module_name}` has no `{path}`") from None
    return found
