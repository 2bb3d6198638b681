"""Python objects by name, for options that come as text."""

from __future__ import annotations

import os
import pkgutil
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
    if not all(given.partition(":")):
        raise UsageError(f"{what} `{given}` is not of the form `module:name`")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return pkgutil.resolve_name(given)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{what} `{given}`: {error}") from error
    except AttributeError:
        module, _, path = given.partition(":")
        raise UsageError(f"{what} `{given}`: module `{module}` has no `{path}`") from None
