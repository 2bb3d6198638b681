"""The permissions of an interactive agent, from its own settings, as a policy that allows no more.

Each format becomes `Permission`s, which know how their agent matches them. The policy is stricter where the two
languages differ: an `allow` that cannot be said exactly is left out, a `deny` covers more than it did.
"""

import ast
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.errors import os_words
from proctor.policies.events.run_context import Tool
from proctor.policies.values.json_values import json_words
from proctor.supervisor.errors import UsageError

Decision: TypeAlias = Literal["allow", "ask", "deny"]
_STRICT: Mapping[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
WRITING = ("write", "edit", "delete", "move")
READING = ("read", "grep", "glob")
_TOOLS = {"read": READING, "write": WRITING, "edit": WRITING}
"""What a name of a permission covers, by the portable name of the tool."""
_PLAIN = re.compile(r"[A-Za-z0-9_./@%+=,-]+(?: [A-Za-z0-9_./@%+=,:-]+)*")
"""A command that needs no quotes."""
_PLAIN_LINE = r"[^;&|<>$`\n()\\'\"{}*?\[\]!#]*"
"""A stretch of a line with nothing in it that a shell reads otherwise than it stands."""
_EVERYTHING = "everything would be allowed; what is not listed is asked about"
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
        worst = max(decided, key=_STRICT.__getitem__, default=self.others)
        return worst if plain or worst != "allow" else "ask"

    def _of_one(self, tool: str, value: str) -> Decision:
        matching = [each.decision for each in self.found if each.about != "unsaid" and each.matches(tool, value)]
        if self.ordered and matching:
            return matching[-1]
        return max(matching, key=_STRICT.__getitem__, default=self.others)

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
    lines += [f"# not said: {_one_line(each)}" for each in given.unsaid]
    lines += ["version: 1", f"name: from-{given.agent}", "on_violation: deny", "tool_rules:"]
    for decision, id, action in (("deny", "denied", "deny"), ("ask", "asked", "request_approval")):
        if found := {each: parts for each, parts in stopped.items() if each.decision == decision}:
            lines += [f"  - id: {id}", f"    action: {action}", "    deny:", *_lines(found)]
    action = "deny" if given.others == "deny" else "request_approval"
    lines += ["  - id: allowed", f"    action: {action}", "    allow:", *_lines(allowed)]
    if words:  # in one entry, as a line may have commands of several
        lines += ["      - tool: bash", "        where:", "          - path: $.command", "            runs:"]
        lines += [f"              - {json.dumps(_words(each))}  # {_one_line(each.written)}" for each in words]
    elif not any(allowed.values()):
        lines.append("      - no-tool  # nothing is allowed unasked")
    return "\n".join(lines) + "\n"


def _lines(found: Mapping[Permission, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    for each, parts in found.items():
        yield from (f"      - {json.dumps(part)}  # {_one_line(each.written)}" for part in parts)


def _stops(each: Permission, kept: Sequence[Permission]) -> list[dict[str, Any]]:
    """Entries of a deny list; a general one leaves out what those that come later allow."""
    later = [one for one in kept if one.line > each.line and one.decision == "allow" and _overlap(one, each)]
    if each.about != "any" or not later:
        return [*_stopped(each)]
    words = list(filter(None, map(_words, later)))
    but: list[Any] = [{"path": "$.command", "runs": words}] if words else []
    but += [condition for one in later for part in _allowed(one) for condition in part.get("where", [])]
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
            yield {"tool": tool, "where": [{"path": "$.path", "within": folder}]}
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


def _one_line(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]+", " ", text)


# Each agent's own format.


def _claude(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    settings = _mapping(data.get("permissions", {}), file, "permissions")
    mode = settings.get("defaultMode", "default")
    if mode in ("acceptEdits", "auto"):
        to.add("allow", f"defaultMode {mode}", WRITING, "path", "./**")
    elif mode == "bypassPermissions":
        to.unsaid.append(f"`defaultMode: bypassPermissions`: {_EVERYTHING}")
    elif mode == "dontAsk":
        to.others = "deny"
    for folder in settings.get("additionalDirectories", ()):
        to.unsaid.append(f"`additionalDirectories`: `{folder}`; name it in a rule `Read(...)` or `Edit(...)`")
    decisions: tuple[Decision, ...] = ("deny", "ask", "allow")
    for decision in decisions:
        for rule in _texts(settings.get(decision, ()), file, f"permissions.{decision}"):
            _claude_rule(decision, rule, to, file)


def _claude_rule(decision: Decision, rule: str, to: Permissions, file: str) -> None:
    found = re.fullmatch(r"([\w*-]+)(?:\((.*)\))?", rule.strip(), re.S)
    if found is None:
        raise UsageError(f"{file}: `{rule}` is no permission rule; one is `Tool` or `Tool(what)`")
    name, what = found[1], (found[2] or "").strip()
    tools = _claude_tools(name)
    if what in ("", "*", "**", ":*"):
        to.add(decision, rule, tools)
    elif name == "Bash":
        to.add(decision, rule, tools, "command", f"{what[:-2]} *" if what.endswith(":*") else what)
    elif name in ("Write", "MultiEdit", "NotebookEdit"):  # the client asks rules of `Edit` only
        to.add(decision, rule, WRITING, "unsaid" if decision == "allow" else "path", what.lstrip("/"))
    elif name in ("Read", "Edit"):
        to.add(decision, rule, tools, "path", _claude_path(what, file))
    elif name == "WebFetch" and what.startswith("domain:") and "*" not in what:
        to.add(decision, rule, tools, "url", what.removeprefix("domain:").lower())
    else:
        to.add(decision, rule, tools, "unsaid")


def _claude_tools(name: str) -> Sequence[str]:
    portable = {
        "bash": ["bash"],
        "read": READING,
        "edit": WRITING,
        "webfetch": ["fetch"],
        "websearch": ["web_search"],
    }
    is_server = re.fullmatch(r"mcp__[^_]+(_[^_]+)*", name)
    return portable.get(name.lower(), [f"{name}__*", name] if is_server else [name])


def _claude_path(written: str, file: str) -> str:
    """A path of a rule: `//` begins at the root, `/` at the folder of the settings, which in a home may be any."""
    if written.startswith("//"):
        return written[1:]
    if written.startswith("/"):
        return f"**{written}" if Path(file).is_absolute() else f".{written}"
    return written


def _codex(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    mode, approval = data.get("sandbox_mode", "read-only"), data.get("approval_policy", "on-request")
    to.add("allow", f"sandbox_mode {mode}", READING)
    if approval == "never":
        to.others = "deny"
    if mode == "workspace-write":
        to.add("allow", "sandbox_mode workspace-write", WRITING, "path", "./**")
        for root in _mapping(data.get("sandbox_workspace_write", {}), file, mode).get("writable_roots", ()):
            to.add("allow", f"writable_roots {root}", WRITING, "path", f"{root}/**")
    elif mode == "danger-full-access":
        to.unsaid.append(f"`sandbox_mode: danger-full-access`: {_EVERYTHING}")
    to.unsaid.append(
        "commands that Codex runs in its sandbox unasked: a policy has no sandbox, so they are asked about"
    )


def _codex_rules(text: str, to: Permissions, file: str) -> None:
    """`prefix_rule(pattern=[...], decision=...)`; the language is a part of Python's."""
    try:
        tree = ast.parse(text)
        decisions: dict[str, Decision] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
        for statement in tree.body:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "prefix_rule":
                to.unsaid.append(f"{file}:{statement.lineno}: {_one_line(ast.unparse(statement))[:80]}")
                continue
            arguments = {
                key.arg: ast.literal_eval(key.value) for key in call.keywords if key.arg in ("pattern", "decision")
            }
            words = [each if isinstance(each, list) else [each] for each in arguments["pattern"]]
            decision = decisions[arguments.get("decision", "allow")]
            for one in product(*words):
                to.add(decision, ast.unparse(call), ["bash"], "command", f"{' '.join(one)} *")
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise UsageError(f"{file}: not a file of rules: {error}") from None


def _gemini(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    tools = _mapping(data.get("tools", {}), file, "tools")
    lists: dict[Decision, tuple[Any, ...]] = {
        "allow": (tools.get("allowed", ()), data.get("allowedTools", ())),
        "deny": (tools.get("exclude", ()), data.get("excludeTools", ())),
    }
    for decision, given in lists.items():
        for rule in (one for each in given for one in _texts(each, file, f"tools of `{decision}`")):
            name, _, what = rule.rstrip(")").partition("(")
            command = f"{what} *" if what else ""
            to.add(decision, rule, _gemini_tools(name), "command" if what else "any", command)
    for place in (tools.get("core"), data.get("coreTools")):
        if place is not None:
            to.unsaid.append("`core`: other tools are hidden from the model; here they are asked about")


def _gemini_tools(name: str) -> list[str]:
    return {"ShellTool": ["bash"], **_acts("gemini")}.get(name, [name])


def _acts(agent: str) -> dict[str, list[str]]:
    """The portable names of an agent's tools, by their own."""
    from .clients import CLIENTS

    return {tool.name: [*tool.acts] for tool in CLIENTS[agent].tools if tool.acts}


def _gemini_policy(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    rules = data.get("rule", [])
    if not isinstance(rules, list):
        raise UsageError(f"{file}: `rule` is a list of tables, `[[rule]]`")
    to.ordered = True
    for rule in sorted(rules, key=lambda one: one.get("priority", 0)):
        _gemini_rule(rule, to, file)


def _gemini_rule(rule: Mapping[str, Any], to: Permissions, file: str) -> None:
    decisions: dict[str, Decision] = {"allow": "allow", "ask_user": "ask", "deny": "deny"}
    if rule.get("decision") not in decisions:
        raise UsageError(f"{file}: a rule's `decision` is allow, deny or ask_user, not `{rule.get('decision')}`")
    decision = decisions[rule["decision"]]
    written = " ".join(f"{key}={value!r}" for key, value in rule.items() if key != "priority")
    names = rule.get("toolName", "*")
    tools = [tool for name in ([names] if isinstance(names, str) else names) for tool in _gemini_tools(name)]
    if server := rule.get("mcpName"):
        tools = [f"mcp_{server}_{name}" for name in tools] + [f"{server}__{name}" for name in tools]
    limited = {"argsPattern", "commandRegex", "modes", "interactive", "toolAnnotations", "subagent"} & rule.keys()
    prefixes = rule.get("commandPrefix", ())
    if limited:
        to.add(decision, written, tools, "unsaid")
    elif prefixes:
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes:
            to.add(decision, written, tools, "command", f"{prefix.strip()} *")
    else:
        to.add(decision, written, tools)


def _opencode(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    to.ordered = True
    given = data.get("permission", {})
    given = _mapping({"*": given} if isinstance(given, str) else given, file, "permission")
    names: Mapping[str, Sequence[str]] = {**_acts("opencode"), "edit": WRITING}
    for name, enabled in _mapping(data.get("tools", {}), file, "tools").items():
        if enabled is False:
            to.add("deny", f"tools.{name}: false", names.get(name, [name]))
    for name, value in given.items():
        for pattern, decision in (value if isinstance(value, dict) else {"*": value}).items():
            if decision not in _STRICT:
                raise UsageError(f"{file}: `permission.{name}` is allow, ask or deny, not `{decision}`")
            tools, written = names.get(name, [name]), f"{name}: {pattern} {decision}"
            about = {"bash": "command", "edit": "path", "read": "path"}.get(name, "unsaid")
            pattern = f"{pattern}*" if about == "path" and pattern.endswith("/*") else pattern
            to.add(decision, written, tools, "any" if pattern == "*" else about, pattern)
    to.unsaid.append("opencode allows what no setting names; the policy asks about it")


def _cursor(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    permissions = _mapping(data.get("permissions", {}), file, "permissions")
    rules: list[tuple[Decision, str]] = [("deny", r) for r in _texts(permissions.get("deny", ()), file, "deny")]
    rules += [("allow", r) for r in _texts(permissions.get("allow", ()), file, "allow")]
    rules += [("allow", f"Shell({r})") for r in _texts(data.get("terminalAllowlist", ()), file, "terminalAllowlist")]
    rules += [("allow", f"Mcp({r})") for r in _texts(data.get("mcpAllowlist", ()), file, "mcpAllowlist")]
    for decision, rule in rules:
        _cursor_rule(decision, rule, to, file)


def _cursor_rule(decision: Decision, rule: str, to: Permissions, file: str) -> None:
    found = re.fullmatch(r"(\w+)\((.*)\)", rule, re.S)
    if found is None:
        raise UsageError(f"{file}: `{rule}` is no permission; one is `Shell(...)`, `Read(...)`, `Write(...)`")
    kind, what = found[1].lower(), found[2].strip()
    if kind == "shell":
        command = f"{what.replace(':', ' ', 1).removesuffix(' *')} *"
        to.add(decision, rule, ["bash"], "any" if what in ("*", "**") else "command", command)
    elif kind in ("read", "write"):
        to.add(decision, rule, _TOOLS[kind], "any" if what in ("*", "**", "**/*") else "path", what)
    elif kind == "webfetch" and "*" not in what:
        to.add(decision, rule, ["fetch"], "url", what.lower())
    elif kind == "mcp":
        server, _, tool = re.sub(r"\s", "", what).replace(",", ":").partition(":")
        to.add(decision, rule, [f"mcp__{server}__{tool or '*'}", f"{server}__{tool or '*'}"])
    else:
        to.add(decision, rule, ["*"], "unsaid")


def _mapping(value: Any, file: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{file}: expected a table of settings at `{name}`")
    return value


def _texts(value: Any, file: str, name: str) -> Iterable[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{file}: expected a list of texts at `{name}`")
    return value


_Reader: TypeAlias = Callable[[Mapping[str, Any], Permissions, str], None]


def _places(agent: str) -> list[tuple[str, _Reader | None]]:
    """Where an agent keeps its permissions, as globs, the least first; a file of rules has no reader of settings."""
    home, env = Path.home(), os.environ
    claude, codex = env.get("CLAUDE_CONFIG_DIR", home / ".claude"), env.get("CODEX_HOME", home / ".codex")
    places: dict[str, list[tuple[str, _Reader | None]]] = {
        "claude": [(f"{claude}/settings.json", _claude), (".claude/settings.json", _claude),
                   (".claude/settings.local.json", _claude)],
        "codex": [(f"{codex}/config.toml", _codex), (f"{codex}/rules/*.rules", None), (".codex/rules/*.rules", None)],
        "gemini": [(f"{home}/.gemini/settings.json", _gemini), (".gemini/settings.json", _gemini),
                   (f"{home}/.gemini/policies/*.toml", _gemini_policy), (".gemini/policies/*.toml", _gemini_policy)],
        "opencode": [(f"{home}/.config/opencode/opencode.json*", _opencode), ("opencode.json*", _opencode)],
        "cursor": [(f"{home}/.cursor/cli-config.json", _cursor), (f"{home}/.cursor/permissions.json", _cursor),
                   (".cursor/cli.json", _cursor), (".cursor/permissions.json", _cursor)],
    }  # fmt: skip
    return places[agent]


_UNASKED = """
    Agent AskUserQuestion BashOutput EnterPlanMode ExitPlanMode KillShell ListAgents ReportFindings TaskCreate
    TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite ToolSearch
"""

AGENTS = ("claude", "codex", "gemini", "opencode", "cursor")


def read_permissions(agent: str) -> Permissions:
    """What the settings of an agent, the person's and this folder's, permit. Raises UsageError."""
    found = Permissions(agent=agent)
    for pattern, reader in _places(agent):
        place = Path(pattern)
        for path in sorted(place.parent.glob(place.name)):
            found.files.append(str(path))
            text = _read(path)
            if reader is None:
                _codex_rules(text, found, str(path))
                continue
            try:
                reader(_mapping(_data(text, path), str(path), "$"), found, str(path))
            except (TypeError, AttributeError) as error:
                raise UsageError(f"`{path}` is not as {agent} writes it: {error}") from None
    if not found.files:
        raise UsageError(f"there are no settings of {agent}: {', '.join(place for place, _ in _places(agent))}")
    if agent == "claude":
        found.add("allow", "reading in the folder", READING, "path", "./**")
        found.add("allow", "tools that Claude Code does not ask about", _UNASKED.split())
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
        return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', r"\1", text, flags=re.S))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` cannot be read: {json_words(error)}") from None
