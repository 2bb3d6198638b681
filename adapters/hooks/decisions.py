"""How hooks decide on calls: the policy files, read again when they have changed; a session's monitor, for a
client that asks its person itself, several questions at once; and when the client need not ask.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import isabs, join, normpath, relpath
from typing import Any, TypeAlias

import msgspec

from proctor.policies import (
    CompiledPolicy,
    Decision,
    Policy,
    RunContext,
    ToolCall,
    Violation,
    compile_policy,
    load_policies,
    merge_policies,
)
from proctor.policies.events import ToolCallStarted
from proctor.policies.events.calls import ALLOWING, NeedsChecks, call_fields
from proctor.policies.events.run_context import Tool
from proctor.policies.monitor.monitor import ListAdmission, Monitor, decision_on
from proctor.policies.policy import members_of
from proctor.policies.shell.parser import read_commands
from proctor.policies.shell.program_options import names_of
from proctor.policies.shell.programs import LinePart
from proctor.policies.shell.words import MAX_DEPTH
from proctor.policies.values.json_values import texts_in
from proctor.supervisor.launch.plan import written
from proctor.supervisor.machine.event_factory import granted
from proctor.supervisor.ports.stored_types import ApprovalRequest

from .clients import CLIENTS
from .messages import HookInput, Unmatched


class HookMonitor(Monitor):
    """A monitor that can decide on a new call as if the person had agreed to every call being asked about.

    Two questions at once could otherwise both be answered yes and together spend more than there is.
    `latest` is the latest decision, `admitted` whether allow lists admit that call; where `unmatched` is `deny`, one
    that none admits is refused.
    """

    def __init__(self, compiled: CompiledPolicy, monitor: Monitor, unmatched: Unmatched) -> None:
        super().__init__(monitor.state)
        self._compiled = compiled
        self._denies_unmatched = unmatched == "deny"
        self.admitted = ListAdmission()
        self._agreed: Sequence[ApprovalRequest] = ()
        self.latest: Decision | None = None

    @contextmanager
    def assuming_granted(self, agreed: Sequence[ApprovalRequest]) -> Iterator[None]:
        """Decide on proposals inside the block as if these were granted and ran."""
        self._agreed = agreed
        try:
            yield
        finally:
            self._agreed = ()

    def decide(self, call: ToolCall, checks: Mapping[str, Any] | None = None) -> Decision | NeedsChecks:
        """Decide on a call; only one that may run under the supposition, too, is allowed."""
        self.admitted = self.admission(call)
        unmatched = self._denies_unmatched and not self.admitted.rules
        supposed = self._supposing(self._agreed, call, checks) if self._agreed or unmatched else None
        if isinstance(supposed, NeedsChecks):
            return supposed
        decision: Decision | NeedsChecks
        if supposed is None or supposed.action in ALLOWING:
            decision = self._unmatched(call) if unmatched else super().decide(call, checks)
        elif supposed.action == "request_approval":
            now = self._supposing((), call, checks)
            decision = now if isinstance(now, NeedsChecks) or now.action not in ALLOWING else supposed
        else:
            decision = supposed
        if isinstance(decision, Decision):
            self.latest = decision
        return decision

    def _unmatched(self, call: ToolCall) -> Decision:
        why = self.admitted.why_not
        violation = Violation(
            policy=self._compiled.name,
            stack=self._compiled.name,
            rule="unmatched",
            kind="unmatched",
            action="deny",
            enforcement="prevented",
            message=f"nothing allows `{call.name}`: {why}",
            details={"expected": "a call that an allow list admits", "actual": why},
            tool_call_id=call.id,
            tool_name=call.name,
        )
        return decision_on(call, [violation], ())

    def _supposing(
        self, agreed: Sequence[ApprovalRequest], call: ToolCall, checks: Mapping[str, Any] | None
    ) -> Decision | NeedsChecks:
        """The decision if these were granted and ran; nothing is changed by it."""
        trial = self._compiled.restore(self.snapshot())
        for request in agreed:
            trial.observe(granted(request, by="", reason=None))
            trial.observe(ToolCallStarted(**call_fields(request.call)))
        return trial.decide(call, checks)


FileStates: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Of each file its path, inode, size and time of change."""


class Rules(msgspec.Struct, frozen=True):
    """One reading of the files; `limits` are the names of those that are set, and of those of budgets, `metadata`
    what each run's record keeps.
    """

    policy: Policy
    compiled: CompiledPolicy
    context: RunContext
    limits: frozenset[str]
    metadata: dict[str, Any]


class RuleFiles:
    """The files and the context that a hook's command line names; `tools` are the client's."""

    def __init__(self, files: Sequence[str], context: RunContext, tools: Sequence[Tool]) -> None:
        self._files = files
        self._context = context
        self._tools = tools
        self._read: tuple[FileStates, Rules] | None = None

    def current(self) -> Rules:
        """The rules as the files have them now; the same object as long as they do not change. Raises PolicyError."""
        state = tuple(_states(self._files))
        if self._read is None or self._read[0] != state:
            self._read = None
            self._read = state, _rules(self._files, self._context, self._tools)
        return self._read[1]


def _rules(files: Sequence[str], context: RunContext, tools: Sequence[Tool]) -> Rules:
    policy = merge_policies([policy for file in files for policy in load_policies(file)])
    members = members_of(policy)
    limits = frozenset(name for member in members for name, _ in member.limits.given())
    limits |= {budget.limit for member in members for budget in member.budgets}
    metadata: dict[str, Any] = {"policy": policy.name, "policies": written(members)}
    return Rules(policy, compile_policy(policy, tools=tuple(tools)), context, limits, metadata)


def _states(files: Sequence[str]) -> Iterator[tuple[str, int, int, int]]:
    """Properties that change when a file, or one in a folder, does; a missing file is left to its reader."""
    for file in files:
        path = Path(file)
        for one in (path, *sorted(path.rglob("*"))) if path.is_dir() else (path,):
            try:
                found = os.stat(one)
            except OSError:
                yield str(one), 0, 0, 0
            else:
                yield str(one), found.st_ino, found.st_size, found.st_mtime_ns


_FOR_THE_PERSON = frozenset(name for client in CLIENTS.values() for name in client.for_the_person)
_ITS_OWN = (
    *(place for client in CLIENTS.values() for place in client.settings.runs_from),
    *(".git/hooks", ".git/config"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_aliases"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".config/fish"),
)
"""Places from which a client, its shell, or a tool of every developer, takes what it runs."""
_AGENTS = frozenset(client.program for client in CLIENTS.values())
"""Programs that change an agent's settings and servers without naming a file, or start one without hooks."""
_LONGEST_PATH = 4096
_READING = frozenset(("read", "glob", "grep"))


class LastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's last answer about a call, kept beside the session's record.

    `because` has a line for each rule that decided, or says why the client was left to ask.
    """

    at: str
    run_id: str
    tool_name: str
    tool_call_id: str
    tool_input: Any
    answer: str
    because: tuple[str, ...]


class Opening:
    """Whether the client need not ask its person about an allowed call: the policy allows it positively.

    Some prompts are no question whether a call may run, and some calls change what the client itself goes by. Those
    are left to the client, whatever the policy says.

    Args:
        unmatched: what becomes of a call that the policy says nothing about.
        kept: the paths of the policies and the store.
    """

    def __init__(self, unmatched: Unmatched, kept: Sequence[str]) -> None:
        self._unmatched = unmatched
        self._kept = tuple(dict.fromkeys((*kept, *map(os.path.realpath, kept))))

    def decide(
        self, call: ToolCall, decision: Decision, admission: ListAdmission, hook_input: HookInput, workspace: str
    ) -> tuple[bool, str]:
        """Whether the call of a hook, which may run, is opened, and why, or why it is left to the client, which began
        in `workspace`, if that is known.
        """
        reason = self._reason_to_leave(call, decision, hook_input, workspace)
        if not reason and admission.unread:
            reason = admission.why_not
        if reason:
            return False, reason
        if admission.rules:
            rules = ", ".join(f"policy `{policy}`, rule `{rule}`" for policy, rule in admission.rules)
            return True, f"allowed by {rules}"
        if self._unmatched == "allow":
            return True, "no rule denies it, and unmatched calls are allowed"
        return False, admission.why_not

    def _reason_to_leave(self, call: ToolCall, decision: Decision, hook_input: HookInput, workspace: str) -> str:
        if decision.action != "allow":
            return "a rule warns of it"
        if hook_input.permission_mode == "plan":
            return "the client is planning"
        if call.name in _FOR_THE_PERSON:
            return "it is a question to the person"
        client = hook_input.client
        if any(call.input.get(name) for name in client.leaves_sandbox):
            return "it leaves the client's sandbox"
        tool = client.tool(call.name)
        acts = set(tool.every_act) if tool is not None else set()
        if tool is not None and acts and (unknown := tool.unknown_among(call.input)):
            return f"it is not known what its `{min(unknown)}` changes"
        if acts and not acts - _READING:
            return ""
        texts, folders = list(texts_in(call.input)), map(call.input.get, client.folder_inputs)
        lines = [(line, read_commands(line).parts) for line in texts] if "bash" in acts else []
        begun_in = _begun_in(hook_input.cwd, workspace, client.worktrees)
        folder = join(begun_in, next((name for name in folders if isinstance(name, str)), ""))
        words = [word for line, parts in lines for word in _words(line, parts, folder)]
        started = next(_agents_started(part for _, parts in lines for part in parts), "")
        if place := started or self._place_among(texts, [path for path, _ in words], hook_input):
            return f"it names `{place}`, by which calls are decided or started"
        leads = next((path for path, expands in words if expands and _is_open(path)), "")
        return f"where `{leads}` leads is known only when it runs" if leads else ""

    def _place_among(self, texts: Sequence[str], words: Sequence[str], hook_input: HookInput) -> str:
        """The first place by which calls are decided or started that a text names, or a word that a shell may expand,
        however spelt; "" if none does.
        """
        home = hook_input.client.settings.home(hook_input.transcript_path)
        shapes = [_shape(normpath(word)) for word in words]
        linked = [real for text in (*texts, *words) for real in _linked(text, hook_input.cwd)]
        spelt = [text.casefold() for text in (*texts, *map(normpath, (*texts, *words)), *linked)]
        for place in (*_ITS_OWN, *self._kept, *filter(None, (home,))):
            plain = place.casefold()
            if any(plain in text for text in spelt) or any(_may_be(plain.split("/"), shape) for shape in shapes):
                return place
        return ""


def _begun_in(cwd: str, workspace: str, worktrees: str) -> str:
    """The folder that commands start in, as an earlier one may have changed it: below where the client began, or one
    of its `worktrees` there; "" if that is the same, or not known.
    """
    if not (isabs(cwd) and isabs(workspace)):
        return ""
    folder = relpath(cwd, workspace)
    if worktrees and folder.startswith(f"{worktrees}/"):
        folder = folder.removeprefix(f"{worktrees}/").partition("/")[2]
    if folder.startswith(".."):
        return cwd
    return "" if folder == "." else folder


def _agents_started(parts: Iterable[LinePart]) -> Iterator[str]:
    return (part.name for part in parts if any(map(_is_agent, names_of(part.name))))


def _is_agent(name: str) -> bool:
    """Whether an agent's program, or a package with it, goes by this name: `claude`, `claude-code`."""
    return name in _AGENTS or name.partition("-")[0] in _AGENTS


def _words(line: str, parts: Iterable[LinePart], folder: str) -> Iterator[tuple[str, bool]]:
    """The words of a command line without their quotes, below the folder that it begins in or changes to, each with
    whether the shell expands it, or the folder of a path. Behind very many, one that leads anywhere.
    """
    folders = _KNOWN if not _SET.search(line) else _NONE
    hides = "dotglob" not in line
    below, left = False, _MOST_OF_WORDS
    for part in parts:
        left -= sum(map(len, part.argv)) + len(folder) * len(part.argv)
        if left < 0:
            yield _ANYWHERE, True
            return
        words = [_unquoted(folders.sub("~", word)) if n in part.unknown else word for n, word in enumerate(part.argv)]
        paths = [
            (n, path if hides else _PATTERN.sub("$_", path))
            for n, word in enumerate(words)
            for path in _paths_in(word)
        ]
        yield from ((join(folder, path), n in part.unknown or (below and "/" in path)) for n, path in paths)
        if part.name in ("cd", "pushd"):
            folder, below = join(folder, words[-1]), below or bool(part.unknown)


_MOST_OF_WORDS = 100_000
"""How many characters of the words of a line, and of the folders they are in, are looked at."""
_ANYWHERE = "$(...)/..."
_KNOWN = re.compile(r"\$(HOME|PWD|TMPDIR)\b|\$\{(HOME|PWD|TMPDIR)\}")
"""Folders that a client has."""
_SET = re.compile(r"(?<![${\w])(HOME|PWD|TMPDIR)\b")
_NONE = re.compile("(?!)")
_ENCODED = re.compile(r"\$'[^']*\\")


_PATTERN = re.compile(r"(?:^|(?<=/))(?=[*?[])")
"""Where a pattern begins, which leaves out names that begin with a dot, unless the shell is told otherwise."""


def _paths_in(word: str) -> set[str]:
    """The word, and what an option has behind its sign or its letter."""
    return {word, word.partition("=")[2] or word, word[2:] if re.match("-[^-].", word) else word}


def _unquoted(word: str) -> str:
    """A word as written, without quotes; any path, where it has characters by their numbers."""
    return _ANYWHERE if _ENCODED.search(word) else re.sub(r"\\\n|[\"'\\]", "", word)


def _linked(text: str, cwd: str) -> Iterator[str]:
    """Where a path, or the value of an option, leads by links that are there now: from the folder if it is there."""
    base = os.path.realpath(cwd) if cwd else ""
    for path in {text, text.rpartition("=")[2]}:
        path = join(base, os.path.expanduser(path))
        if len(path) <= _LONGEST_PATH and "\0" not in path and isabs(path):
            real = os.path.realpath(path)
            if real != normpath(path):
                yield real.removeprefix(f"{base}/") if base else real


_EXPANDED = re.compile(r"\$\w+|\$?{[^{}]*}|\$?\([^()]*\)|`[^`]*`|\$[^\w*]")


def _shape(word: str) -> list[str]:
    """A pattern for each folder of a path, and its file, as the shell may expand them."""
    path = word.casefold()
    for _ in range(MAX_DEPTH):  # the innermost first
        path = _EXPANDED.sub(lambda found: "\0\0" if "\0" in found[0] else "\0", path)
    each = (f"[!.]{name}" if name.startswith(("*", "?", "[")) else name for name in path.split("/"))
    return [name.replace("\0", "*") for name in each]


def _is_open(path: str) -> bool:
    """Whether nothing is known of one of its folders, or of what several expansions make."""
    *folders, last = _shape(path)
    is_open = any((name and not name.strip("*")) or re.search("[$`(){}]", name) for name in folders)
    return is_open or (last.startswith("**") and not last.strip("*"))


def _may_be(place: Sequence[str], shape: Sequence[str]) -> bool:
    """Whether a path may lead to a hidden place, or end above it; one that says nothing of its name does not."""
    if not place[0].startswith("."):
        return False
    begins = (n for n, name in enumerate(shape) if name.startswith((".", "*")) and name.strip("*"))
    return any(all(map(fnmatchcase, place, shape[n : n + len(place)])) for n in begins)
