"""Policy files, and directories of them, to policies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import PolicyError, Problem, read_each
from ..policy import Policy
from .formats.source import SUFFIXES
from .reader import Document, read_document
from .tree import MAX_TEXT


def load_policies(path: str | os.PathLike[str]) -> list[Policy]:
    """Read the policies of a file, or of every policy file of a directory, in name order.

    A file's suffix tells its format: `.yaml`, `.yml`, `.json`, `.toml`, else YAML. The files of a directory that
    are contracts are one policy, named after the directory.

    Raises:
        PolicyError: something cannot be read, or is wrong; every problem of every file is listed.
    """
    try:
        folder = Path(os.fspath(path))
        if not folder.is_dir():
            return _read(folder).policies
        return _together(folder, read_each(_read, policy_files(folder)))
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError([_unreadable(path, error)]) from None


def policy_files(folder: Path) -> list[Path]:
    """The policy files of a directory, in name order.

    Raises:
        PolicyError: there is none.
    """
    files = sorted(each for each in folder.iterdir() if _is_policy_file(each))
    if not files:
        suffixes = ", ".join(f"`{suffix}`" for suffix in SUFFIXES)
        message = "no policy file is in the directory"
        raise PolicyError([Problem(message=message, file=str(folder), suggestion=f"their names end in {suffixes}")])
    return files


def _is_policy_file(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _read(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_TEXT + 1)  # what is longer is refused by its length
    except (OSError, ValueError) as error:
        raise PolicyError([_unreadable(path, error)]) from None
    return read_document(data, file=str(path), format=SUFFIXES.get(path.suffix.lower()))


def _unreadable(path: object, error: Exception) -> Problem:
    reason = getattr(error, "strerror", None) or str(error)
    return Problem(message=f"cannot read the file: {reason.lower()}", file=str(path))


def _together(folder: Path, documents: Sequence[Document]) -> list[Policy]:
    """The policies of a directory; those that are contracts are one, where the first of them stands."""
    rules = tuple(rule for each in documents if each.contracts for policy in each.policies for rule in policy.rules)
    found: list[Policy] = []
    for document in documents:
        if not document.contracts:
            found += document.policies
        elif rules:
            name = folder.resolve().name or "contracts"
            found.append(msgspec.structs.replace(document.policies[0], name=name, rules=rules))
            rules = ()
    return found
