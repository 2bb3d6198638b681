"""Redacts secrets in everything that is recorded, logged and shown; rules evaluate the exact values."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import re2

from proctor.policies.errors import os_words, wrong_type
from proctor.policies.events import Encoded, Event
from proctor.policies.values import regexes
from proctor.policies.values.json_values import NOT_YAML, json_words

from .errors import UsageError
from .secret_patterns import COMMANDS, PROGRAMS, TRIGGERS, names_secret, shipped, words_of

VARIABLE = "PROCTOR_REDACTION"
"""The environment variable with the default for every process: `off`, or a YAML file."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The secrets to redact from the event log, the logs and the output.

    Attributes:
        off: redact nothing.
        patterns: regular expressions (RE2) of more secrets, by their kind in placeholders. If one has a group, the
            group is the secret.
        allow: values that are not secrets, as they appear in a text.
        key: the key of placeholders' digests, besides the session's id; without both, nobody can test a guess.
    """

    off: bool = False
    patterns: dict[str, str] = {}
    allow: tuple[str, ...] = ()
    key: str = ""

    @classmethod
    def of_environment(cls) -> Redaction:
        """The redaction of PROCTOR_REDACTION, or the default. Raises UsageError for a file that cannot be read."""
        named = os.environ.get(VARIABLE, "")
        if named in ("", "on"):
            return cls()
        if named == "off":
            return cls(off=True)
        try:
            return msgspec.yaml.decode(Path(named).read_bytes(), type=cls)
        except OSError as error:
            reason = os_words(error)
        except NOT_YAML as error:
            reason = json_words(error)
        raise UsageError(f"`{VARIABLE}` is `off` or a YAML file; `{named}` cannot be used: {reason}")


PLACEHOLDER = b"[redacted:"
"""The beginning of every placeholder."""

_REST = re.compile(rb"[\w-]*")
_IN_QUOTES = ("command-password", "named-secret")
"""Kinds of secrets that may have spaces if they are quoted."""
_LONGEST_QUOTED = 256


class SecretSpan(NamedTuple):
    """A secret: its start and end in a text's bytes, and its kind."""

    start: int
    end: int
    kind: str


class Detector:
    """Finds secrets by the shipped patterns and the caller's. Raises UsageError for one that RE2 cannot read."""

    def __init__(self, redaction: Redaction) -> None:
        self._own = [_compiled(kind, regex) for kind, regex in redaction.patterns.items()]
        self._allowed = frozenset(value.encode() for value in redaction.allow)

    def suspects(self, data: bytes) -> bool:
        """Whether a text, or JSON that has it, may have a secret: quick, and never wrongly false."""
        return bool(self._own) or _compiled_once(TRIGGERS).search(data) is not None

    def find(self, text: bytes) -> list[SecretSpan]:
        """The secrets in a text, from left to right, none inside another."""
        wanted = list(self._own)
        if _compiled_once(TRIGGERS).search(text):
            commands, others = _shipped()
            wanted += (*commands, *others) if _compiled_once(COMMANDS).search(text) else others
        found = sorted(span for span in self._all(text, wanted) if span.start < span.end)
        return _merged(found)

    def may_be_named(self, value: str) -> bool:
        """Whether a value with a secret's name may be one: it is no placeholder, no variable, and not allowed."""
        data = value.encode("utf-8", "surrogatepass")
        if _REFERENCE.fullmatch(data):
            return False
        return bool(data) and not data.startswith((PLACEHOLDER, b"$")) and data not in self._allowed

    def _all(self, text: bytes, wanted: Sequence[_Compiled]) -> Iterator[SecretSpan]:
        """What each pattern finds in a text, unless it is redacted already, is allowed, or says where a secret is."""
        for kind, regex, groups in wanted:
            done = 0
            for match in regex.finditer(text):
                spans = map(match.span, range(1, groups + 1))
                start, end = next((span for span in spans if span[0] >= 0), None) or match.span()
                if kind in _IN_QUOTES:
                    end = _closing_quote(text, match.start() if kind == "command-password" else start - 1, start, end)
                if start < done:
                    continue  # it stands in what was taken whole
                if not groups:
                    end = _REST.match(text, end).end()  # type: ignore[union-attr]  # it matches everywhere
                done = end
                if text.startswith(PLACEHOLDER, start) or _REFERENCE.fullmatch(text, start, end):
                    continue  # it was replaced before, or says where the secret is
                if not self._allowed or not self._allowed & {text[start:end], match[0]}:
                    yield SecretSpan(start, end, kind)


def _closing_quote(text: bytes, since: int, start: int, end: int) -> int:
    """The end of a secret: if it is quoted, at the quote that closes the one opened after `since`."""
    opened = max(text.rfind(b"'", since, start), text.rfind(b'"', since, start)) if since >= 0 else -1
    quote = text[opened : opened + 1]
    if opened < 0 or text.count(quote, since, start) % 2 == 0:
        return end
    closed = text.find(quote, end, end + _LONGEST_QUOTED)
    if closed < 0 or b"\n" in text[end:closed]:
        return end
    return end + len(text[end:closed].rstrip(b"\\"))


def _merged(found: list[SecretSpan]) -> list[SecretSpan]:
    """The spans, with overlapping ones joined."""
    apart: list[SecretSpan] = []
    for span in found:
        if apart and span.start < apart[-1].end:
            last = apart[-1]
            apart[-1] = last._replace(end=max(last.end, span.end))
        else:
            apart.append(span)
    return apart


@cache
def _compiled_once(regex: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.max_mem = 64 * 1024 * 1024
    return re2.compile(regex.encode(), options)


_Compiled: TypeAlias = "tuple[str, Any, int]"
"""A kind of secret, its regex, and how many groups it has that may be the secret."""


@cache
def _shipped() -> tuple[list[_Compiled], list[_Compiled]]:
    """The shipped patterns of passwords of commands, and the others."""
    compiled = [_compiled(pattern.kind, pattern.regex, grouped=pattern.grouped) for pattern in shipped()]
    commands = [each for each in compiled if each[0] == "command-password"]
    return commands, [each for each in compiled if each[0] != "command-password"]


def _compiled(kind: str, regex: str, *, grouped: bool = True) -> _Compiled:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise UsageError(f"redaction pattern `{kind}` cannot be read: {regexes.words_of(error)}") from None
    return kind, compiled, compiled.groups if grouped else 0


EXACT = frozenset(
    (
        "approval_id",
        "created_at",
        "event_id",
        "id",
        "input_digest",
        "kind",
        "parent_tool_call_id",
        "provider",
        "provider_session_id",
        "run_id",
        "session_id",
        "tool_call_id",
    )
)
"""Fields of records that identify something, which are never redacted."""

_NAMES = ("name", "key", "k", "header", "field", "variable", "Name", "Key")
_VALUES = ("value", "Value", "val", "v")
"""The keys of the value in objects that are a name and a value."""
_LOGINS = ("user", "username", "login", "email")
_PASSES = ("pass", "pw")
_PAIRS = re.compile("(?:.*_)?(?:auth|login|creds|credentials|userpwd|userpass)")
"""Names under which a user and a password stand, as a list or as `user:password`."""
_REFERENCE = re.compile(rb"(?:[\w./-]+,)?(?:id|src|source|target|type|env)=\S*")
"""How a build or a container is told of a secret that it finds elsewhere: `--secret id=x,src=y`."""
_OBJECTS = "get|describe|delete|edit|create|rm|inspect|ls|list|set|remove"
_NO_NAME = re.compile(
    rf"(?s)(?:{_OBJECTS})\0secret\0.*|.*\0secret\0(?:{_OBJECTS})|.*openssl\0passwd\0.*"
    r"|.*\0(?:change_password|pin|passkey|bearer|--with-token)\0.+|\0.*wpa_passphrase\0.*"
)
"""Words of commands, between their neighbours, that name no value: `kubectl get secret NAME`, `brew pin NAME`."""

_NAMES_COUNTS = re.compile(r"(?i)token|cookie|authorization|credential|pin=-?[0-9.]{1,3}$")
"""Names under which a number is a count, or a place."""

_VARIABLE = re.compile("([A-Za-z_-][A-Za-z0-9_-]*)=")
_WORD = re.compile("[A-Za-z0-9_./-]+")
_ONE_WORD = bytes.maketrans(b" \t\n\r\f|;&\"'`", b"\x1f" * 11)
T = TypeVar("T")
_encode = msgspec.json.Encoder(enc_hook=str).encode
_UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError)


class Redactor:
    """Replaces secrets by `[redacted:KIND:DIGEST]`, with equal digests for equal secrets of one session only."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        redaction = Redaction.of_environment() if redaction is None else redaction
        if not isinstance(redaction, Redaction):
            raise UsageError(wrong_type("a `Redaction`", redaction))
        try:
            redaction = msgspec.convert(msgspec.to_builtins(redaction), Redaction)
        except msgspec.ValidationError as error:
            raise UsageError(f"this is not a `Redaction`: {json_words(error)}") from None
        self._detector = None if redaction.off else Detector(redaction)
        self._key = redaction.key

    def events(self, events: list[Event], lines: list[bytes]) -> list[Event]:
        """Events of one session, redacted; `lines` are their encodings, fewer if one has none. Checking many at once
        is cheap, as almost none has a secret.
        """
        if len(lines) == len(events) and not (self._detector and self._detector.suspects(b"\n".join(lines))):
            return Encoded(events, lines)
        long: dict[str, str] = {}
        return [self._redacted(event, event.session_id, long) for event in events]

    def redact(self, value: T, session_id: str = "") -> T:
        """A text, a JSON value or a record, redacted; the same object if it has no secret."""
        return self._redacted(value, session_id, {})

    def _redacted(self, value: T, session_id: str, long: dict[str, str]) -> T:
        if self._detector is None or not self._suspects(value):
            return value
        redacted: T = _Walk(self._detector, self._placeholder_of(session_id), long).of(value)
        return redacted

    def _suspects(self, value: Any) -> bool:
        if self._detector is None:
            return False
        try:
            return self._detector.suspects(_encode(value))
        except _UNREADABLE:  # no store takes it either, but what is shown of it is searched
            return True

    def _placeholder_of(self, session_id: str) -> Callable[[str, bytes], bytes]:
        key = f"{self._key}\0{session_id}".encode("utf-8", "replace")

        def placeholder(kind: str, secret: bytes) -> bytes:
            return f"[redacted:{kind}:{hmac.digest(key, secret, 'sha256').hex()[:16]}]".encode()

        return placeholder


@dataclass(eq=False)
class _Walk:
    """Redacts one value; parts without secrets are returned as they are. Long texts are kept in `_long`, redacted, as
    several events of a call have the same. With `named_by_items`, an item of a list may name the next one, which is
    not so in a policy's lists of tools and commands.
    """

    _detector: Detector
    _placeholder: Callable[[str, bytes], bytes]
    _long: dict[str, str]
    named_by_items: bool = True

    @cached_property
    def _of_policies(self) -> _Walk:
        return _Walk(self._detector, self._placeholder, self._long, named_by_items=False)

    def of(self, value: Any, depth: int = 0, *, named: str = "") -> Any:
        """A value, redacted; as a whole if it has a secret's name (`named`)."""
        if isinstance(value, str):
            return self._whole(value) if named and self._detector.may_be_named(value) else self._text(value)
        if depth > _DEEPEST or value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return self._number(value, named)
        if isinstance(value, dict):
            return self._object(value, depth, named)
        if isinstance(value, (list, tuple)):
            return self._list(value, depth, named)
        return self._struct(value, depth) if isinstance(value, msgspec.Struct) else value

    def _number(self, value: float, named: str) -> Any:
        text = str(value)
        is_secret = named and not _NAMES_COUNTS.search(f"{named}={text}") and self._detector.may_be_named(text)
        return self._whole(text) if is_secret else value

    def _object(self, value: dict[Any, Any], depth: int, named: str) -> dict[Any, Any]:
        """An object, whose values are named by their keys, by another of its values, or as the whole of it is."""
        name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
        pair = name if names_secret(name) else ""
        passes = _PASSES if any(key in value for key in _LOGINS) else ()
        walked = {}
        for key, item in value.items():
            walk = self._of_policies if key == "policies" else self
            secret = named or _secret_name(key, pair) or (key if key in passes else "")
            walked[self.of(key, depth + 1)] = walk.of(self._login(key, item), depth + 1, named=secret)
        same = all(map(is_, value, walked)) and all(map(is_, value.values(), walked.values()))
        return value if same else walked

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int, named: str) -> list[Any] | tuple[Any, ...]:
        """A list, or the words of a command, whose items may be named by those before them."""
        before = _names_before(value) if self.named_by_items else [""] * len(value)
        items = []
        for item, name in zip(self._variables(list(value)), before, strict=True):
            items.append(self.of(item, depth + 1, named=named or name))  # a comprehension is a frame more a level
        items = self._arguments(items)
        return value if all(map(is_, value, items)) else type(value)(items)

    def _login(self, key: Any, item: Any) -> Any:
        """The value of a key, without the password if the key announces a user and a password."""
        if not isinstance(key, str) or names_secret(key) or _PAIRS.fullmatch(words_of(key)) is None:
            return item
        if isinstance(item, str):
            user, colon, password = item.partition(":")
            is_pair = password and not item.startswith("[redacted:") and self._detector.may_be_named(password)
            return user + colon + self._whole(password) if is_pair else item
        if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
            return [item[0], self._whole(item[1])] if self._detector.may_be_named(item[1]) else item
        if isinstance(item, dict):
            if "basic" in item:
                item = item | {"basic": self._login("auth", item["basic"])}
            wholes = ("bearer", "value") if "type" in item or "scheme" in item else ("bearer",)
            whole = {name: item[name] for name in wholes if isinstance(item.get(name), str | int)}
            return item | {name: self.of(part, named="password") for name, part in whole.items()}
        return item

    def _variables(self, items: list[Any]) -> list[Any]:
        """An environment as `NAME=value`, or the words of a command, in which a value ends with its text."""
        found = [_VARIABLE.match(item) if isinstance(item, str) else None for item in items]
        if not any(found) or not (found[0] or (isinstance(items[0], str) and _WORD.fullmatch(items[0]))):
            return items
        return [self._assigned(name, item) if name else item for name, item in zip(found, items, strict=True)]

    def _assigned(self, name: re.Match[str], item: str) -> str:
        """`NAME=value`, without the value if it is a secret."""
        value = item[name.end() :]
        is_secret = names_secret(name[1]) and self._detector.may_be_named(value)
        return f"{name[0]}{self._whole(value)}" if is_secret else item

    def _arguments(self, items: list[Any]) -> list[Any]:
        """The words of a command, of which some are secrets by the words before them: `-u user:password`."""
        are_words = all(isinstance(item, str) for item in items)
        if not are_words or not any(PROGRAMS.fullmatch(item.rpartition("/")[2]) for item in items):
            return items
        words = [item.encode("utf-8", "surrogatepass") for item in items]
        line = b" ".join(word.translate(_ONE_WORD) or b"\x1f" for word in words)
        spans = [span for span in self._detector.find(line) if span.kind == "command-password"]
        place = 0
        for n, word in enumerate(words):
            for start, end, kind in reversed(spans):
                if place <= start and end <= place + len(word):
                    start, end = start - place, end - place
                    word = word[:start] + self._placeholder(kind, word[start:end]) + word[end:]
                    items[n] = word.decode("utf-8", "surrogatepass")
            place += max(len(words[n]), 1) + 1
        return items

    def _struct(self, value: msgspec.Struct, depth: int) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name in value.__struct_fields__:
            if name not in EXACT:
                before = getattr(value, name)
                after = self.of(before, depth + 1)
                if after is not before:
                    changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value

    def _whole(self, text: str) -> str:
        return self._placeholder("named-secret", text.encode("utf-8", "surrogatepass")).decode()

    def _text(self, text: str) -> str:
        if len(text) < _LONG:
            return self._searched(text)
        if text not in self._long:
            self._long[text] = self._searched(text)
        return self._long[text]

    def _searched(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")  # places in text are slow to find again, those in bytes are not
        parts: list[bytes] = []
        place = 0
        for start, end, kind in self._detector.find(data):
            parts += (data[place:start], self._placeholder(kind, data[start:end]))
            place = end
        return b"".join((*parts, data[place:])).decode("utf-8", "surrogatepass") if parts else text


def _secret_name(key: Any, pair: str) -> str:
    """The name that makes the value of `key` a secret; `pair` is the name in an object of name and value."""
    if not isinstance(key, str):
        return ""
    return key if names_secret(key) else pair if key in _VALUES else ""


def _names_before(items: Sequence[Any]) -> list[str]:
    """For each item, the one before it if that is a secret's name, and no word of a command that names no value."""
    words = [item if isinstance(item, str) else "" for item in items]
    names = [word if names_secret(word) else "" for word in words]
    if any(names) and len(words) > 2:
        between = zip(["", *words], words, [*words[1:], ""], strict=False)
        names = [
            "" if _NO_NAME.fullmatch("\0".join(each)) else name for each, name in zip(between, names, strict=True)
        ]
    return ["", *names][: len(items)]


UNREDACTED = Redactor(Redaction(off=True))
"""Leaves everything as it is."""


class SessionRedactor:
    """Redacts the values of one session. Each idle run keeps one: a `partial` takes four times as much."""

    __slots__ = ("_redactor", "_session_id")

    def __init__(self, redactor: Redactor, session_id: str) -> None:
        self._redactor = redactor
        self._session_id = session_id

    def __call__(self, value: T) -> T:
        return self._redactor.redact(value, self._session_id)


_LONG = 10_000
"""The length from which a redacted text is kept for the next events of one write."""

_DEEPEST = 400
"""How deep a value may be nested; no store accepts a deeper one."""
