"""Errors to exit codes and one message on standard error; the only place that does so.

0  fine
1  a policy was violated
2  bad input or usage
3  the provider or the machine failed, or somebody ended it
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator

FINE, VIOLATED, BAD_INPUT, FAILED = 0, 1, 2, 3
_CODES = {
    "policy_violation": VIOLATED,
    "starts_blocked": FAILED,
    "store_error": FAILED,
    "provider_error": FAILED,
    "provider_unavailable": FAILED,
    "unknown_session": FAILED,
}
"""By the `code` of an error; every other error raised on purpose is about what was given."""
_NOT_A_STORE = ("not_a_store", "newer_schema", "run_exists")
"""Kinds of store errors that are about what was given, not about the machine."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def report(error: BaseException, *, debug: bool) -> int:
    """Say on standard error what went wrong and give the exit code for it."""
    if debug:
        traceback.print_exception(error)
    leaves = list(_leaves(error))
    shown = next((leaf for leaf in leaves if not isinstance(leaf, KeyboardInterrupt)), leaves[0])
    code, text = _code_and_text(shown)
    from proctor.adapters.kit.values.printable import printable_lines

    print(printable_lines(text), file=sys.stderr)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in an error group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _code_and_text(error: BaseException) -> tuple[int, str]:
    from proctor.policies.errors import PolicyError, ProctorError

    if isinstance(error, PolicyError):
        from .problems import problem_text

        return BAD_INPUT, problem_text(error.problems)
    if isinstance(error, ProctorError):
        return code_of(error), f"error: {error}"
    if isinstance(error, KeyboardInterrupt):
        return FAILED, "interrupted"
    if isinstance(error, OSError) and error.filename is not None:
        return BAD_INPUT, f"error: `{error.filename}`: {(error.strerror or str(error)).lower()}"
    if isinstance(error, OSError) and error.errno in _FULL:
        return FAILED, f"error: the output cannot be written: {(error.strerror or str(error)).lower()}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("proctor."):
        return (
            FAILED,
            f"error: the installation has no `{error.name}`; after a `git pull`, run `pip install -e .` again",
        )
    first = (str(error).splitlines() or [""])[0]
    kind = type(error).__name__
    return FAILED, f"error: this should not have happened: {kind}: {first}\nrun `proctor --debug ...` for details"


def code_of(error: BaseException) -> int:
    """The exit code for an error that is raised on purpose."""
    if getattr(error, "kind", None) in _NOT_A_STORE:
        return BAD_INPUT
    if type(error).__name__ == "EventError" and getattr(error, "partial", None) is not None:
        return FAILED  # what a provider reported, not what was given
    return _CODES.get(str(getattr(error, "code", "")), BAD_INPUT)
