"""The permissions of an interactive agent, from its own settings, as a policy that allows no more.

`clients` turn their formats into `Permission`s, which know how their agent matches them. The policy is stricter where
the two languages differ: an `allow` that cannot be said exactly is left out, a `deny` covers more than it did.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.errors import os_words
from proctor.policies.events.run_context import Tool
from proctor.policies.values.json_values import json_words
from proctor.supervisor.errors import UsageError

Decision: TypeAlias = Literal["allow", "ask", "deny"]
STRICT: Mapping[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
WRITING = ("write", "edit", "delete", "move")
READING = ("read", "grep", "glob")
"""The portable tools that a permission to write, or to read, is about."""
_PLAIN = re.compile(r"[A-Za-z0-9_./@%+=,-]+(?: [A-Za-z0-9_./@%+=,:-]+)*")
"""A command that needs no quotes."""
_PLAIN_LINE = r"[^;&|<>$`\n()\\'\"{}*?\[\]!#]*"
"""A stretch of a line with nothing in it that a shell reads otherwise than it stands."""
EVERYTHING = "everything would be allowed; what is not listed is asked about"
_SPLIT = re.compile(r"&&|\|\||[;|&\n]")


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """One permission: what it says of calls of some tools.

    Attributes:
        decision: What becomes of a call that it matches.
        written: As the settings have it.
        tools: Portable names, or the agent's own; globs.
        about: What `pattern` is compared with; of `any` every call is matched, of `unsaid` none is known to be.
        pattern: A glob; of a command that ends in ` *` the words before it alone match, too.
        line: The place among the agent's rules, where a later one counts more.
    """

    decision: Decision
    written: str
    tools: tuple[str, ...]
    about: Literal["any", "command", "path", "url", "unsaid"] = "any"
    pattern: str = ""
    line: int = 0

    def matches(self, tool: str, value: str) -> bool:
        """Whether the agent would match a call of this portable tool: one command, one path or one URL."""
        if not any(re.fullmatch(_regex(name, "[^\n]*"), tool, re.I) for name in self.tools):
            return False
        if self.about == "any":
            return True
        if self.about == "command":
            return re.fullmatch(_command_regex(self.pattern, "(?s:.*)"), value.strip()) is not None
        if self.about == "path":
            return re.fullmatch(rf"(.*/)?{_path_regex(self.pattern)}(/.*)?", value) is not None
        return self.about == "url" and _host(value) == self.pattern


class Permissions(msgspec.Struct, kw_only=True):
    """All permissions of an agent, what it does with other calls, and what was read but cannot be said."""

    agent: str
    found: list[Permission] = []
    unsaid: list[str] = []
    files: list[str] = []
    others: Decision = "ask"
    ordered: bool = False
    """The last that matches counts, not the strictest."""

    def add(
        self, decision: Decision, written: str, tools: Sequence[str], about: str = "any", pattern: str = ""
    ) -> None:
        given: dict[str, Any] = {"decision": decision, "written": written, "tools": tuple(tools), "about": about}
        self.found.append(Permission(**given, pattern=pattern, line=len(self.found)))

    def decide(self, tool: str, value: str) -> Decision:
        """What the settings say of a call, by the portable name of its tool: the strictest of what matches."""
        parts = [part for part in _SPLIT.split(value) if part.strip()] if tool == "bash" else [value]
        decided = [self._of_one(tool, part) for part in parts]
        anything = any(
            each.about == "any" and each.decision == "allow" and each.matches(tool, "") for each in self.found
        )
        plain = tool != "bash" or anything or not re.search(r"[$`<>]", value)
        worst = max(decided, key=STRICT.__getitem__, default=self.others)
        return worst if plain or worst != "allow" else "ask"

    def _of_one(self, tool: str, value: str) -> Decision:
        matching = [each.decision for each in self.found if each.about != "unsaid" and each.matches(tool, value)]
        if self.ordered and matching:
            return matching[-1]
        return max(matching, key=STRICT.__getitem__, default=self.others)

    def in_force(self) -> list[Permission]:
        """Those that decide anything: where the last counts, none that a later one about all calls undoes.

        A general `ask` before an `allow` is what becomes of any other call; a general `deny` of all tools, `others`.
        """
        if not self.ordered:
            return self.found
        kept: list[Permission] = []
        for each in self.found:
            if each.about == "any" and each.decision != "allow":
                kept = [one for one in kept if one.decision != "allow" or not _overlap(one, each)]
                if each.tools == ("*",) and each.decision == "deny":
                    self.others = "deny"
                if each.decision == "ask" or each.tools == ("*",):
                    continue
            kept.append(each)
        return kept


def _overlap(one: Permission, other: Permission) -> bool:
    return any(a == b or "*" in a + b for a in one.tools for b in other.tools)


def policy_text(given: Permissions) -> str:
    """The policy as YAML; above it, and in `unsaid`, what could not be said."""
    kept = given.in_force()
    stopped = {each: _stops(each, kept if given.ordered else ()) for each in kept if each.decision != "allow"}
    allowed = {each: [*_allowed(each)] for each in kept if each.decision == "allow"}
    words = [each for each in allowed if _words(each)]
    given.unsaid += [f"allow `{e.written}`: it is asked about" for e in allowed if not allowed[e] and e not in words]
    lines = [
        f"# The permissions in {', '.join(given.files)}, as far as a policy can state them; it allows nothing more."
    ]
    lines += [f"# not said: {one_line(each)}" for each in given.unsaid]
    lines += ["version: 1", f"name: from-{given.agent}", "on_violation: deny", "tool_rules:"]
    for decision, id, action in (("deny", "denied", "deny"), ("ask", "asked", "request_approval")):
        if found := {each: parts for each, parts in stopped.items() if each.decision == decision}:
            lines += [f"  - id: {id}", f"    action: {action}", "    deny:", *_lines(found)]
    action = "deny" if given.others == "deny" else "request_approval"
    lines += ["  - id: allowed", f"    action: {action}", "    allow:", *_lines(allowed)]
    if words:  # in one entry, as a line may have commands of several
        lines += ["      - tool: bash", "        where:", "          - path: $.command", "            runs:"]
        lines += [f"              - {json.dumps(_words(each))}  # {one_line(each.written)}" for each in words]
    elif not any(allowed.values()):
        lines.append("      - no-tool  # nothing is allowed unasked")
    return "\n".join(lines) + "\n"


def _lines(found: Mapping[Permission, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    for each, parts in found.items():
        yield from (f"      - {json.dumps(part)}  # {one_line(each.written)}" for part in parts)


def _stops(each: Permission, kept: Sequence[Permission]) -> list[dict[str, Any]]:
    """Entries of a deny list; a general one leaves out what those that come later allow."""
    later = [one for one in kept if one.line > each.line and one.decision == "allow" and _overlap(one, each)]
    if each.about != "any" or not later:
        return [*_stopped(each)]
    words = list(filter(None, map(_words, later)))
    but: list[Any] = [{"path": "$.command", "runs": words}] if words else []
    met = [part["where"] for one in later for part in _allowed(one) if "where" in part]
    but += [where[0] if len(where) == 1 else {"not": [{"not": where}]} for where in met]
    return [{"tool": [*each.tools], **({"where": [{"not": [{"any_of": but}]}]} if but else {})}]


def _words(each: Permission) -> str:
    """The words that a command begins with, where they need no quotes."""
    words = each.pattern.removesuffix(" *")
    return words if each.about == "command" and words != each.pattern and _PLAIN.fullmatch(words) else ""


def _allowed(each: Permission) -> Iterator[dict[str, Any]]:
    """Entries of an allow list that match no more than the permission."""
    tool = list(each.tools)
    if each.about == "any":
        yield {"tool": tool}
    elif each.about == "command":
        words = each.pattern.removesuffix(" *")
        if not _words(each) and ("*" in words or "?" in words or _PLAIN.fullmatch(words)):
            regex = rf"^{_command_regex(each.pattern, _PLAIN_LINE)}$"
            yield {"tool": tool, "where": [{"path": "$.command", "regex": regex}]}
    elif each.about == "path":
        folder = re.sub(r"(^|/)\*\*$", "", each.pattern) or "."
        if not re.search(r"[*?\[{]", folder):
            where: list[dict[str, Any]] = [{"path": "$.path", "within": folder}]
            if folder != each.pattern and re.search(r"[^/.~]", name := folder.rsplit("/", 1)[-1]):
                itself = rf"(^|/){re.escape(name)}[/.]*$"  # `src/**` is what is in `src`
                where.append({"not": [{"path": "$.path", "regex": itself}]})
            yield {"tool": tool, "where": where}
    elif each.about == "url":
        regex = rf"(?i)^https?://{re.escape(each.pattern)}(:\d+)?([/?#]|$)"
        yield {"tool": tool, "where": [{"path": "$.url", "regex": regex}]}


_OTHER_SPELLING = r"^\s*https?:[/\\]*[^/\\?#]*([%\s]|[^\x00-\x7f])"
"""An address whose host may be spelled in another way."""


def _stopped(each: Permission) -> Iterator[dict[str, Any]]:
    """Entries of a deny list that match at least what the permission matches."""
    tool = list(each.tools)
    if each.about in ("any", "unsaid"):
        yield {"tool": tool}
    elif each.about == "command":
        words = each.pattern.removesuffix(" *").rstrip("*").strip()
        if _PLAIN.fullmatch(words):
            in_order = r"[\s\S]*".join(map(re.escape, words.split()))
            yield {
                "tool": tool,
                "where": [{"path": "$.command", "runs": [words]}, {"path": "$.command", "regex": in_order}],
            }
        regex = rf"(^|[;&|`(\n])\s*{_command_regex(each.pattern, '(?s:.*)')}"
        yield {"tool": tool, "where": [{"path": "$.command", "regex": regex}]}
    elif each.about == "path":
        regex = rf"(?i)(^|/){_path_regex(each.pattern)}(/|$)"
        yield {"tool": tool, "where": [{"path": "$.path", "regex": regex}]}
        folder = re.sub(r"/?\*{1,2}$", "", each.pattern) or "."
        if not re.search(r"[*?\[{]", folder):
            yield {"tool": tool, "where": [{"path": "$.path", "within": folder}]}
        text = rf"(?i)(^|[^\w.-]){_path_regex(each.pattern)}($|[^\w.-])"
        yield {"tool": "bash", "where": [{"path": "$.command", "regex": text}]}
    elif each.about == "url":
        regex = rf"(?i)(^|[^\w-]){re.escape(each.pattern)}\.?([^\w.-]|$)|{_OTHER_SPELLING}"
        yield {"tool": tool, "where": [{"path": "$.url", "regex": regex}]}


def _regex(glob: str, any_text: str) -> str:
    return "".join(any_text if part == "*" else re.escape(part) for part in re.split(r"(\*)", glob))


def _command_regex(pattern: str, any_text: str) -> str:
    """A glob over one command; words before a last ` *` are words, with or without others behind them."""
    words = pattern.removesuffix(" *")
    body = (
        _regex(re.sub(r"\s+", " ", words), any_text)
        .replace(r"\ ", r"\s+")
        .replace(r"\?", "." if "?" in words else r"\?")
    )
    return body if words == pattern else rf"{body}(\s{any_text})?"


def _path_regex(pattern: str) -> str:
    """A glob over a path, without what it begins from: a home, a root, the folder of the settings."""
    bare = re.sub(r"^(~/|\./|/+)?(\*\*/)*", "", pattern).rstrip("/")
    marks = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(marks.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", bare))


def _host(url: str) -> str:
    return re.sub(r"^\w+://([^/?#]*@)?", "", url).split("/")[0].split(":")[0].split("?")[0].split("#")[0].lower()


def one_line(text: str) -> str:
    """A text of the settings, for a comment."""
    return re.sub(r"[^\x20-\x7e]+", " ", text)


def mapping_at(value: Any, file: str, name: str) -> Mapping[str, Any]:
    """A table of settings. Raises UsageError, with the file and its name there, for anything else."""
    if not isinstance(value, dict):
        raise UsageError(f"{file}: expected a table of settings at `{name}`")
    return value


def texts_at(value: Any, file: str, name: str) -> Iterable[str]:
    """A list of texts. Raises UsageError as `mapping_at`."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{file}: expected a list of texts at `{name}`")
    return value


def acts_of(tools: Iterable[Tool]) -> dict[str, list[str]]:
    """The portable names of tools, by their own."""
    return {tool.name: [*tool.acts] for tool in tools if tool.acts}


AGENTS = ("claude", "codex", "gemini", "opencode", "cursor")
"""Those of `clients.CLIENTS` with `permissions`, which take time to import."""
Reader: TypeAlias = Callable[[Any, Permissions, str], None]
"""Adds what a file says, from its tables (of `.rules` its text) and its name. Raises UsageError."""
_RULES = ".rules"


def read_permissions(agent: str, *places: tuple[Path | str, Reader]) -> Permissions:
    """What the settings of an agent permit, at these places: globs of files, the least first. Raises UsageError."""
    found = Permissions(agent=agent)
    for pattern, reader in places:
        place = Path(pattern)
        for path in sorted(place.parent.glob(place.name)):
            found.files.append(str(path))
            data = _data(_read(path), path)
            try:
                reader(data if path.suffix == _RULES else mapping_at(data, str(path), "$"), found, str(path))
            except (TypeError, AttributeError) as error:
                raise UsageError(f"`{path}` is not as {agent} writes it: {error}") from None
    if not found.files:
        raise UsageError(f"there are no settings of {agent}: {', '.join(str(place) for place, _ in places)}")
    return found


_INPUTS = ("command", "cmd", "path", "file_path", "filePath", "absolute_path", "url")


def portable_call(tool: str, given: Mapping[str, Any], tools: Sequence[Tool]) -> tuple[str, str]:
    """The portable name of a recorded call's tool among these, or its own, and its command, path or URL."""
    named = (each for each in tools if tool.casefold() in map(str.casefold, (each.name, *each.synonyms)))
    acts = (act for each in named for act in each.acts)
    return next(acts, tool), next((str(given[name]) for name in _INPUTS if name in given), "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` cannot be read: {os_words(error)}") from None


def _data(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == _RULES:
            return text
        return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', r"\1", text, flags=re.S))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` cannot be read: {json_words(error)}") from None
