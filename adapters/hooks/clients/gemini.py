"""Gemini CLI: its events, the fields of its input, its answers, its permissions."""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from glob import iglob
from os.path import exists, expanduser, isabs, join, relpath
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from proctor.supervisor.errors import UsageError

from ...kit.client_tools import HOOKED, runs_in_background
from .. import messages
from ..permission_import import Decision, Permissions, acts_of, mapping_at, read_permissions, texts_at

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "BeforeAgent": "prompt",
    "BeforeTool": "call",
    "AfterTool": "completed",
    "AfterAgent": "stop",
    "SessionEnd": "session_end",
}
_TIMEOUT_MS: Final = 120_000


class _Input(messages.HookMessage, frozen=True, kw_only=True, rename={"last_assistant_message": "prompt_response"}):
    last_assistant_message: str | None = None
    tool_input: dict[str, Any] = {}
    tool_response: Any = None


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, GEMINI)
    kind, result = EVENTS.get(message.event), message.tool_response
    error = _error(message.tool_name, result) if kind == "completed" and isinstance(result, dict) else None
    taken = {name: _taken(message, name) for name in _PATHS if isinstance(message.tool_input.get(name), str)}
    tool_input = {**message.tool_input, **taken}
    kind = "failed" if error else kind
    prompt = _typed(message.prompt, message.cwd) if kind == "prompt" else ""
    changed = {"prompt": prompt.partition(_FILES)[0], "tool_input": tool_input}
    if (shown := _shown(message)) is not None:
        changed["tool_response"] = shown
    return messages.hook_input(GEMINI, message, kind=kind, error=error, **changed)


def _shown(message: _Input) -> Any:
    """What a server said, or a command has printed, without the client's own words; None if it may be more than that,
    as with a command that goes on.
    """
    name, result = message.tool_name, message.tool_response
    shown = result.get("returnDisplay") if isinstance(result, dict) else None
    if name.startswith("mcp_"):
        return shown
    ended = name == "run_shell_command" and not runs_in_background(name, message.tool_input, result)
    return shown if ended and isinstance(shown, str) else None


_FILES: Final = "\n--- Content from referenced files ---"
"""Before what the files and resources hold that a prompt names with `@`: nobody has typed that."""

_ARGS: Final = "{{args}}"
_MOST_COMMANDS: Final = 1000
_LONGEST_COMMAND: Final = 1 << 20
_ANY: Final = "!{}"
"""The text of a command that cannot be read: it may become any prompt."""


def _typed(prompt: str, cwd: str) -> str:
    """What a person has typed of a prompt, as slash commands are now: the text of one becomes the prompt, and no hook
    says so. Nothing, where it may be that of several.
    """
    plain = re.sub("\r\n?", "\n", prompt)
    found = {typed for name, text in _commands(cwd) if (typed := _typed_of(name, text, plain)) is not None}
    return found.pop() if len(found) == 1 else "" if found else prompt


def _typed_of(name: str, text: str, prompt: str) -> str | None:
    """What makes this prompt of a command; no more than its name where the client puts in what it reads or runs,
    which could look like anything. None, where nothing does.
    """
    injected = re.search("[!@]{", text)
    if injected:
        before, after = text[: injected.start()].partition(_ARGS)[0], text.rpartition("}")[2]
        pattern = f"{re.escape(before)}.*{re.escape(after)}.*"
    elif _ARGS in text:
        first, *rest = map(re.escape, text.split(_ARGS))
        pattern = f"{first}(?P<args>.*){'(?P=args)'.join(rest)}"
    else:
        pattern = rf"{re.escape(text)}(\n\n(?P<line>/.*))?"
    if (made := re.fullmatch(pattern, prompt, re.DOTALL)) is None:
        return None
    words = made.groupdict()
    return words.get("line") or f"/{name} {words.get('args') or ''}".rstrip()


def _commands(cwd: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each slash command in a file."""
    number = 0
    for home in (join(cwd, ".gemini"), expanduser("~/.gemini")):
        for folder in ("commands", *iglob("extensions/*/commands", root_dir=home, include_hidden=True)):
            for file in _below(join(home, folder)):
                yield relpath(file, join(home, folder)).removesuffix(".toml").replace("/", ":"), _text_of(file)
                number += 1
                if number == _MOST_COMMANDS:
                    yield file, _ANY
                    return


def _below(folder: str) -> Iterator[str]:
    """The files of commands; those that links lead to twice are there once."""
    seen = set[str]()
    for path, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(path)) in seen:
            folders.clear()
        else:
            seen.add(real)
            yield from (join(path, name) for name in names if name.endswith(".toml"))


def _text_of(file: str) -> str:
    try:
        found = os.stat(file)
        # A pipe would keep every hook waiting.
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LONGEST_COMMAND:
            return _ANY
        text = tomllib.loads(Path(file).read_text("utf-8-sig")).get("prompt")
    except (OSError, ValueError, RecursionError):
        return _ANY
    return text if isinstance(text, str) else _ANY


_PATHS: Final = ("file_path", "dir_path")
_ANYWHERE: Final = "$ANYWHERE/"
"""Before the path of a file that the client looks for in the whole folder, so that nobody knows where it is."""


def _taken(message: _Input, name: str) -> str | list[str]:
    """A path, and what the client may take it for: it decodes `%2f`, leaves out null characters and, if there is no
    such file, an `@` in front; and it edits a file elsewhere whose path ends so.
    """
    path = message.tool_input[name]
    plain = path.replace("\0", "")
    found = [path, *map(_decoded, (plain, plain.removeprefix("@").lstrip("/\\") if plain[:1] == "@" else plain))]
    if message.tool_name == "replace" and message.tool_input.get("old_string") and not isabs(plain):
        found += [] if exists(join(message.cwd, plain)) else [f"{_ANYWHERE}{plain}"]
    return found[0] if len({*found}) == 1 else [*dict.fromkeys(found)]


def _decoded(path: str) -> str:
    """The path as the client decodes it; as it is, if it cannot be decoded."""
    try:
        return path if re.search("%(?![0-9A-Fa-f]{2})", path) else unquote(path, errors="strict")
    except UnicodeDecodeError:
        return path


_FAILED: Final = re.compile(r"(Exit Code|Signal): (?!(0|\(none\))$)|Command was (automatically )?cancelled")
"""How a line begins by which the client tells the model that a command failed, or was interrupted."""
_RAN: Final = re.compile(r"(Command|Output): |Command (is running in|moved to) background")
"""How one begins where it ran: the client itself blocks some, or tells the model a summary."""


def _error(tool_name: str, result: Mapping[str, Any]) -> Any:
    """Why a call failed; the client names no error of a command."""
    text = result.get("llmContent")
    if tool_name != "run_shell_command" or not isinstance(text, str):
        return result.get("error")
    lines = text.splitlines()
    failed = any(map(_FAILED.match, lines)) or not any(map(_RAN.match, lines))
    return result.get("error") or (text if failed else None)


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The hook's output; `allow` is not said, as the client asks its person all the same.

    Which file it edits, the client has looked for before the calls in front of this one ran; where it gets the input
    back, it looks again.
    """
    fields: dict[str, Any] = {}
    path = given.tool_input.get("file_path")
    plain = path[0] if isinstance(path, list) else path
    if given.kind == "call" and given.tool_name == "replace" and isinstance(plain, str) and not isabs(plain):
        fields["hookSpecificOutput"] = {
            "hookEventName": "BeforeTool",
            "tool_input": {**given.tool_input, "file_path": plain},
        }
    if answer.notes:
        fields["systemMessage"] = "\n".join(answer.notes)
    if answer.stop:
        fields |= {"continue": False, "stopReason": messages.STOPPED}
    if given.kind in ("call", "prompt") and answer.verdict != "allow":
        fields |= {"decision": answer.verdict, "reason": answer.reason}
        if answer.verdict == "ask":
            fields["systemMessage"] = "\n".join((answer.reason, *answer.notes))
    return fields


def _entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    # A repository may switch off hooks by their names, managed ones too: none can know this one.
    name = f"proctor-{hashlib.sha256(line.encode()).hexdigest()[:12]}"
    # A folder's `.env` may set what is not set. And `bash` takes the client for a network, for which it first runs
    # `.bashrc`, which may print, unless it is below another shell.
    env = {**messages.emptied(messages.NEVER_SET, environment), "SHLVL": "1"}
    hook = {"type": "command", "name": name, "command": line, "timeout": _TIMEOUT_MS, "env": env}
    return {"hooks": [hook], "sequential": True}


def _read_settings(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    tools = mapping_at(data.get("tools", {}), file, "tools")
    lists: dict[Decision, tuple[Any, ...]] = {
        "allow": (tools.get("allowed", ()), data.get("allowedTools", ())),
        "deny": (tools.get("exclude", ()), data.get("excludeTools", ())),
    }
    for decision, given in lists.items():
        for rule in (one for each in given for one in texts_at(each, file, f"tools of `{decision}`")):
            name, _, what = rule.rstrip(")").partition("(")
            command = f"{what} *" if what else ""
            to.add(decision, rule, _tools_of(name), "command" if what else "any", command)
    for place in (tools.get("core"), data.get("coreTools")):
        if place is not None:
            to.unsaid.append("`core`: other tools are hidden from the model; here they are asked about")


def _tools_of(name: str) -> list[str]:
    return {"ShellTool": ["bash"], **acts_of(HOOKED["gemini"])}.get(name, [name])


def _read_policy(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    rules = data.get("rule", [])
    if not isinstance(rules, list):
        raise UsageError(f"{file}: `rule` is a list of tables, `[[rule]]`")
    to.ordered = True
    for rule in sorted(rules, key=lambda one: one.get("priority", 0)):
        _add_rule(rule, to, file)


def _add_rule(rule: Mapping[str, Any], to: Permissions, file: str) -> None:
    decisions: dict[str, Decision] = {"allow": "allow", "ask_user": "ask", "deny": "deny"}
    if rule.get("decision") not in decisions:
        raise UsageError(f"{file}: a rule's `decision` is allow, deny or ask_user, not `{rule.get('decision')}`")
    decision = decisions[rule["decision"]]
    written = " ".join(f"{key}={value!r}" for key, value in rule.items() if key != "priority")
    names = rule.get("toolName", "*")
    tools = [tool for name in ([names] if isinstance(names, str) else names) for tool in _tools_of(name)]
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


def _permissions() -> Permissions:
    home = Path.home()
    return read_permissions(
        "gemini",
        (home / ".gemini/settings.json", _read_settings),
        (".gemini/settings.json", _read_settings),
        (home / ".gemini/policies/*.toml", _read_policy),
        (".gemini/policies/*.toml", _read_policy),
    )


GEMINI: Final = messages.HookClient(
    name="gemini",
    program="gemini",
    title="Gemini CLI",
    by="gemini",
    tools=HOOKED["gemini"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".gemini/settings.json",
        user=".gemini/settings.json",
        managed="/etc/gemini-cli/settings.json",
        entry=_entry,
        beside=lambda environment: {"hooksConfig": {"enabled": True}},
        overriding=(".gemini/settings.json",),
        runs_from=(".gemini", "/etc/gemini-cli"),
        off=("hooksConfig", "enabled"),
        on=True,
        beside_ours=((".gemini/settings.json", '"BeforeTool"'),),
    ),
    asks=True,
    folder_inputs=("dir_path",),
    for_the_person=("ask_user", "enter_plan_mode", "exit_plan_mode"),
    permissions=_permissions,
    fails_open=(
        messages.NOT_STARTED,
        messages.CHANGED,
        "shell commands of a slash command (`!{...}`) use no hook",
        "the text of a slash command counts as yours if a server brings it, or its file is gone or has changed since "
        "the agent read it",
        "a folder's settings can switch hooks off (`hooksConfig`), except those of `--managed`",
        "hooks in an untrusted folder don't run",
        "a trusted folder's MCP servers start without a hook",
        "on Linux, `LD_TRACE_LOADED_OBJECTS` in a trusted folder's `.env` keeps hooks from running",
    ),
)
