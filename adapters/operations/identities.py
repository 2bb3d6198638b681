"""Tokens: who holds each, and what it allows."""

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from proctor.policies.errors import os_words
from proctor.policies.values.json_values import NOT_YAML, json_words
from proctor.supervisor.errors import UsageError

from ..kit.values import login_name

T = TypeVar("T")
Role: TypeAlias = Literal["see", "answer", "stop"]
ROLES: tuple[Role, ...] = ("see", "answer", "stop")
VARIABLE = "PROCTOR_WEB_TOKEN"
SHORTEST = 16
"""Characters a token needs, so that it cannot be guessed."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a token: `name` is recorded with what they do, `groups` are the groups that policies may
    name.

    `see` reads everything, `answer` grants and denies, `stop` ends runs; the latter two include `see`.
    """

    name: str
    roles: tuple[Role, ...] = ROLES
    groups: tuple[str, ...] = ()

    def may(self, role: Role) -> bool:
        return role == "see" or role in self.roles


class TokenLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One holder in a file of tokens. `sha256` is the token's digest in hex, for files that hold no secret."""

    name: str
    token: str = ""
    sha256: str = ""
    roles: tuple[Role, ...] = ("see",)
    groups: tuple[str, ...] = ()


class TokenFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of tokens."""

    tokens: tuple[TokenLine, ...]


class AccessTokens:
    """The valid tokens, kept as digests only."""

    def __init__(self, holders: Iterable[tuple[bytes, Identity]]) -> None:
        self._holders = tuple(holders)

    def holder(self, token: str) -> Identity | None:
        """The holder of a token, None if nobody; the time taken does not reveal how much of it is right."""
        given = _digest(token)
        found = None
        for digest, identity in self._holders:
            if hmac.compare_digest(digest, given):
                found = identity
        return found


def one_token(token: str | None = None) -> tuple[AccessTokens, str]:
    """One token that allows everything, in the name of the user who runs this; a new one if none is given.

    Raises UsageError for one that could be guessed.
    """
    made = token or secrets.token_urlsafe(32)
    _check(made, f"the token in {VARIABLE}")
    return AccessTokens([(_digest(made), Identity(name=login_name()))]), made


def from_environment() -> str | None:
    """The token from the environment, removed from it so that no process started from here finds it."""
    return os.environ.pop(VARIABLE, None) or None


def read_private(path: Path, kind: type[T], *, holds: str) -> T:
    """A file in YAML that holds secrets. Raises UsageError for one that is wrong or that others could read."""
    try:
        found, data = path.stat(), path.read_bytes()
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {os_words(error)}") from None
    if _is_open(found):
        raise UsageError(f"`{path}` can be read by others; it holds {holds}: chmod 600 {path}")
    return _parsed(data, str(path), kind)


def read_tokens(file: str) -> AccessTokens:
    """The tokens of a file in YAML. Raises UsageError for a file that is wrong or that others could read."""
    lines = read_private(Path(file), TokenFile, holds="tokens").tokens
    if not lines:
        raise UsageError(f"`{file}` holds no tokens")
    found: dict[bytes, Identity] = {}
    names = set()
    for line in lines:
        digest = _digest_of(line, file)
        if digest in found:
            raise UsageError(f"`{file}`: `{line.name}` has the token of somebody else")
        if line.name in names:
            raise UsageError(f"`{file}`: `{line.name}` is there twice")
        names.add(line.name)
        found[digest] = Identity(name=line.name, roles=line.roles, groups=line.groups)
    return AccessTokens(found.items())


def _is_open(found: os.stat_result) -> bool:
    """Whether others could read or write a file. A group may read one of root's: so do service managers and
    orchestrators hand a secret to a user that is not root.
    """
    others = stat.S_IRWXO | stat.S_IRWXG
    if found.st_uid == 0 and os.geteuid() != 0:
        others &= ~stat.S_IRGRP
    return bool(found.st_mode & others)


def _parsed(data: bytes, file: str, kind: type[T]) -> T:
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(data), kind)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise UsageError(f"`{file}` is not YAML" + (f", in line {line + 1}" if line is not None else "")) from None
    except NOT_YAML as error:
        words = json_words(error)
        roles = f"; a role is one of {', '.join(ROLES)}" if words.startswith("unknown value") else ""
        raise UsageError(f"`{file}`: {words}{roles}") from None


def _digest_of(line: TokenLine, file: str) -> bytes:
    if not line.name.strip() or not line.name.isprintable():
        raise UsageError(f"`{file}`: every token needs the `name` of who holds it")
    if bool(line.token) == bool(line.sha256):
        raise UsageError(f"`{file}`: `{line.name}` needs one of `token` and `sha256`")
    if line.token:
        _check(line.token, f"`{file}`: the token of `{line.name}`")
        return _digest(line.token)
    try:
        digest = bytes.fromhex(line.sha256)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise UsageError(f"`{file}`: `sha256` of `{line.name}` is not a SHA-256 digest in hex")
    return digest


def _check(token: str, what: str) -> None:
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{what} must have at least {SHORTEST} characters, ASCII and without blanks")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
