"""What the caller wants redacted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..errors import UsageError

VARIABLE = "PROCTOR_REDACTION"
"""The environment variable that holds for every process which is not told otherwise: `off`, or a YAML file."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which secrets are taken out of the record, the logs and what is shown.

    Args:
        off: nothing is.
        patterns: regular expressions (RE2) of further secrets, by what a placeholder calls them. Where one has a
            group, the group is the secret.
        allow: values that are not secrets, as they stand in a text.
        key: what placeholders are keyed with besides the session's id; who has neither cannot test a guess.
    """

    off: bool = False
    patterns: dict[str, str] = {}
    allow: tuple[str, ...] = ()
    key: str = ""

    @classmethod
    def of_environment(cls) -> Redaction:
        """What PROCTOR_REDACTION says, or the default. Raises UsageError for a file that cannot be read."""
        named = os.environ.get(VARIABLE, "")
        if named in ("", "on"):
            return cls()
        if named == "off":
            return cls(off=True)
        try:
            return msgspec.yaml.decode(Path(named).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(f"`{VARIABLE}` is `off` or a YAML file; `{named}` cannot be used: {error}") from None
