"""A hook's input and answer, the same for all clients; `clients` has each client's format."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import TokenUsageUpdated
from proctor.policies.events.run_context import Tool
from proctor.policies.rules.machine import EvaluatedCall
from proctor.policies.values.json_values import NOT_JSON, json_words

from ..kit.usage_log import LOOK_S, UsageLog
from ..kit.values import whole_characters
from .permission_import import Permissions

Decoded = TypeVar("Decoded")
Kind: TypeAlias = Literal[
    "prompt", "call", "permission", "completed", "failed", "batch", "interrupt", "stop", "session_end", "settings"
]
"""The event: a person prompts; a call is about to run; the client is about to ask its person about a call; a call has
completed, or failed; the calls of a turn have ended; a person has interrupted the turn; the turn has ended; the
session has ended; settings have changed."""
CAN_STOP: tuple[Kind, ...] = ("call", "completed", "failed", "batch")
"""Those whose answer may end the turn."""
REFUSABLE: tuple[Kind, ...] = ("prompt", "call", "settings")
"""Those whose answer can prevent something; the others report what has happened."""
REPORTS: tuple[Kind, ...] = ("completed", "failed", "batch", "interrupt", "stop", "session_end")
"""Those that only report."""
Unmatched: TypeAlias = Literal["ask", "allow", "deny"]
"""What happens to a call that no rule denies and no allow list allows: `ask` leaves it to the client."""
UNMATCHED: Unmatched = "ask"
"""The default."""
MOST_HELD_S = 540
"""The most seconds that a call waits for an answer from elsewhere: no client waits ten minutes for a hook."""
HOOK_HELD_S = MOST_HELD_S + 30
"""The most seconds that the hook of such a call takes."""
QUESTION_S = 86_400
"""The same for a hook that waits beside the client's own question, however long its person takes."""


NOT_STARTED: Final = "a hook that can't be started is skipped, such as when the working folder is gone or renamed"
"""A gap of several clients."""


CHANGED: Final = (
    "another hook, also a trusted folder's, can change a call after the decision; "
    "proctor cancels the run if it denies what ran"
)
"""Another one."""


class LastOutput(msgspec.Struct, frozen=True):
    """The output of the latest call of a tool, and when it came."""

    at: datetime
    output: Any


class LoggedEnd(msgspec.Struct, frozen=True):
    """The end of a call in a client's log, with the result that the model got."""

    output: Any
    failed: bool = True


class BatchCall(msgspec.Struct, frozen=True):
    """One call of a turn that has ended."""

    tool_use_id: str
    tool_name: str = ""


class HookInput(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's input.

    Attributes:
        client: whose hook it is.
        kind: what happened; None for an event that nothing follows from.
        event: the client's own name of it.
        session_id: the session, as the client names it.
        prompt_id: the prompt it belongs to, if the client names it.
        agent_id: the subagent it comes from.
        parent_id: the session, or the subagent, that started the subagent whose session this is.
        tool_use_id: the call; if the client names none, empty, and tool and input tell calls apart.
        error: why the call, or the turn that ended, has failed.
        used: the usage of turns that the client itself reports here for the first time.
        by_person: whether a person wrote the prompt; other prompts are the client's own, with text of a model.
        woken: the client prompts because work in the background has ended, and continues a person's prompt.
        awaits: the turn has ended, and its subagents continue in the background.
        own_settings: settings have changed that no repository and no agent can write.
    """

    client: HookClient
    kind: Kind | None
    event: str
    session_id: str
    prompt_id: str = ""
    agent_id: str | None = None
    parent_id: str = ""
    permission_mode: str = ""
    cwd: str = ""
    transcript_path: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""
    tool_response: Any = None
    error: Any = None
    tool_calls: tuple[BatchCall, ...] = ()
    last_assistant_message: str | None = None
    reason: str = ""
    used: tuple[TokenUsageUpdated, ...] = ()
    by_person: bool = True
    woken: bool = False
    awaits: bool = False
    own_settings: bool = False


Verdict = Literal["allow", "ask", "deny"]


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one hook.

    With `allow` and a reason, the client asks nobody, but its own rules can still deny; without a reason, the client
    decides as if there were no hook. `reason` is public: that of `deny` is for the model, others are for the person.
    `stop` ends the turn; `notes` are for the person only. `held` is the approval that the call waits for: once that
    is answered, so is the hook.
    """

    verdict: Verdict = "allow"
    reason: str = ""
    stop: bool = False
    notes: tuple[str, ...] = ()
    held: str = ""


STOPPED = "A policy ended this response."
NEVER_SET: Final = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_DEBUG", "GCONV_PATH", "LOCPATH"),
    *("DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH", "__PYVENV_LAUNCHER__"),
    *("BASH_ENV", "ENV", "SHELLOPTS"),
)
"""Variables by which a folder could put code of its own into a hook, or keep it from running; Python's own are
ignored as it is.
"""


def emptied(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a settings file: those that are not used here are empty, so that no folder sets them."""
    return {name: "" for name in names if not environment.get(name)}


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version, to compare it; none for a text without any."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client's hooks stand.

    Attributes:
        project: the file of a folder, relative to it.
        user: the file of a person, relative to their home, or to the folder that `home_variable` names.
        managed: the file that no person and no repository can change; empty where there is none.
        home_variable: the variable of the environment that moves the person's folder.
        logs: the folder in the person's folder that its logs of sessions are below.
        entry: a hook as the file has it, of an event, a command line, and the environment of whoever installs.
        in_shell: whether a shell runs the line.
        own_shell: whether that shell is the person's own.
        http_entry: the same of an event, a URL and an `Authorization`; None where the client sends no hooks itself.
        beside: what else the file gets, from that environment.
        beside_managed: what managed settings get, too.
        text: the whole file, of the events and the command line, where it is no JSON with `hooks`.
        overriding: a folder's files whose settings go before a person's, the strongest first.
        runs_from: places, as parts of paths, from which it takes what it runs: a call that names one is left to it.
        off: whether settings switch hooks off, the keys on the way to the value; empty where none does.
        on: the value that leaves them on.
        beside_ours: files of a folder, as patterns, that can change what is decided where they have this text.
    """

    project: str
    user: str
    managed: str = ""
    home_variable: str = ""
    logs: str = ""
    entry: Callable[[str, str, Mapping[str, str]], dict[str, Any]]
    in_shell: bool = True
    own_shell: bool = False
    http_entry: Callable[[str, str, str], dict[str, Any]] | None = None
    beside: Callable[[Mapping[str, str]], dict[str, Any]] = lambda environment: {}
    beside_managed: Mapping[str, Any] = {}
    text: Callable[[str], str] | None = None
    overriding: tuple[str, ...] = ()
    runs_from: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    on: bool = False
    beside_ours: tuple[tuple[str, str], ...] = ()

    def of_user(self, path: str) -> Path:
        """A path in the person's home, or where the variable has moved its first folder."""
        moved = os.environ.get(self.home_variable) if self.home_variable else None
        return Path(moved, *Path(path).parts[1:]) if moved else Path.home() / path

    def home(self, log: str) -> str:
        """The person's folder, by the log of a session, even if a variable has moved it; empty if unknown."""
        return log.rpartition(f"/{self.logs}/")[0] if self.logs else ""


class HookTrust(msgspec.Struct, frozen=True, kw_only=True):
    """A client starts only those hooks that it trusts, by its own settings.

    Attributes:
        back_up: keeps these settings as they are, before hooks come.
        trust: has it trust the hooks of a file, as it sees them in a folder; what came of it, in words.
        distrust: takes the trust in the hooks of a file out of its settings.
        loads: whether it starts the hooks of a file in a folder, and why not.
    """

    back_up: Callable[[ClientSettings], None]
    trust: Callable[[Path, Path], str]
    distrust: Callable[[ClientSettings, Path], None]
    loads: Callable[[Path, Path], tuple[bool, list[str]]]


class HookClient(msgspec.Struct, frozen=True, kw_only=True):
    """One client with hooks: its words for what all of them have, and what it does with them.

    Attributes:
        name: as `--agent` has it, and as the record names the provider.
        program: the program that starts it.
        title: its name for people.
        by: who answers when the client asks its person.
        tools: its tools by their portable names.
        events: its names of events that are needed, with what happened.
        read: what it says, from the bytes; raises EventError.
        output: its words for an answer; empty when there is nothing to say.
        settings: where its hooks stand.
        trust: how it trusts them, if it has to; its program may then be elsewhere than on PATH.
        asks: an answer of `ask` reaches the person; without it a call that is to be approved is denied.
        opens: the event at which `allow` spares the person a question; None where the client asks all the same.
        hears: the event at which a call that is to be approved waits for an answer from elsewhere, such as the page:
            `permission`, beside the client's own question, or `call`, as far as the hook's line says (`--hold`).
        lowest: the lowest version whose hooks refuse whatever happens to them; empty where that is not known.
        fails_open: what the client runs without a decision; empty where nothing is known.
        unheard: the tools that no hook of it shows, by their names in policies, each with why.
        ended: of the calls with these ids, those that its log, by its path, shows as refused or interrupted by a
            person, each with whether it ran: no hook tells of it; and all that ran, if no hook tells any more.
        hook_answered: whether, by its log, a hook answered the question about the call of this id, not its person.
        logged_ends: of the calls that run, by id, those that its log shows as over and no hook of it tells of, such
            as calls that fail.
        leaves_sandbox: inputs by which a call leaves its own sandbox.
        folder_inputs: inputs with the folder that a command runs in.
        worktrees: the folder, in the one it began in, with worktrees of its own.
        for_the_person: tools whose prompt is what they are for, so that it is left to the person.
        own_inputs: of a tool, the inputs that it sets itself: with its person's answer, or in one of its hooks only.
        schedules: tools by which a model schedules a prompt, each with the input that has its text.
        scheduled: whether, by its log, a schedule prompts at this moment; True waits for that to be written.
        may_leave_sandbox: whether, by its log, the call of this id may leave its sandbox: its question need not say.
        exit_code: of a command that has run, where a hook does not say; by its log, None if that does not say either.
        scripts: scripts of the model, by their ids, that run by its log as a call comes that one of them makes; none
            where no script makes it. With its script a call is over, and no hook tells of one that failed.
        continues: whether, by its log and the latest output of a tool of `continues_by`, it goes on by itself with
            what was prompted, now that a response is over.
        continues_by: tools whose output says whether it does.
        ends_by: tools by which a model ends that: they do nothing else, and a run that was cancelled refuses none.
        rests_for: why it says that a session is over with which it may still go on by itself.
        tells_usage: its hooks say what was used.
        usage: reads its log of a session, from a path, an earlier state, and the time before which nothing counts.
        permissions: reads what its settings, the person's and this folder's, permit; None where nobody knows how.
    """

    name: str
    program: str
    title: str
    by: str
    tools: tuple[Tool, ...]
    events: Mapping[str, Kind]
    read: Callable[[bytes], HookInput]
    output: Callable[[HookAnswer, HookInput], dict[str, Any]]
    settings: ClientSettings
    trust: HookTrust | None = None
    asks: bool = False
    opens: Literal["call", "permission"] | None = None
    hears: Literal["call", "permission"] | None = None
    lowest: str = ""
    fails_open: tuple[str, ...] = ()
    unheard: Mapping[str, str] = {}
    ended: Callable[[str, Collection[str], bool], Mapping[str, bool]] | None = None
    hook_answered: Callable[[str, str], bool] = lambda log, call_id: False
    logged_ends: Callable[[HookInput, Mapping[str, EvaluatedCall]], Mapping[str, LoggedEnd]] | None = None
    leaves_sandbox: tuple[str, ...] = ()
    folder_inputs: tuple[str, ...] = ()
    worktrees: str = ""
    for_the_person: tuple[str, ...] = ()
    own_inputs: Mapping[str, tuple[str, ...]] = {}
    schedules: Mapping[str, str] = {}
    scheduled: Callable[[str, bool], bool] = lambda log, waits: False
    may_leave_sandbox: Callable[[HookInput, str], bool] = lambda given, call_id: False
    exit_code: Callable[[HookInput], int | None] = lambda given: 0
    scripts: Callable[[HookInput], frozenset[str]] = lambda given: frozenset()
    continues: Callable[[str, LastOutput | None], bool] = lambda log, latest: False
    continues_by: tuple[str, ...] = ()
    ends_by: tuple[str, ...] = ()
    rests_for: tuple[str, ...] = ()
    tells_usage: bool = False
    usage: Callable[[str, bytes | None, datetime], UsageLog] | None = None
    permissions: Callable[[], Permissions] | None = None

    def evaluated(self, name: str, given: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """The input of a tool's call as a later hook gives it; what the client itself sets is as it was `before`."""
        own = self.own_inputs.get(name, ())
        rest = {key: value for key, value in given.items() if key not in own}
        return {**rest, **{key: before[key] for key in own if key in before}}

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, if it is known."""
        folded = name.casefold()
        return next((one for one in self.tools if folded in map(str.casefold, (one.name, *one.synonyms))), None)


class HookMessage(msgspec.Struct, frozen=True, kw_only=True, rename={"event": "hook_event_name"}):
    """One hook's input as most clients have it; fields that a client's own does not name are its own business."""

    session_id: str
    event: str
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    reason: str = ""


def decoded(data: bytes, type: type[Decoded], client: HookClient) -> Decoded:
    """A client's message, decoded as its own type. What a call has put out may be cut within a character.

    Raises EventError for anything else.
    """
    try:
        data.decode()  # all of it is text, also what is not looked at
        whole = whole_characters(data)
        message = msgspec.json.decode(whole, type=type)
        kind = client.events.get(getattr(message, "event", ""))
        may_be_cut = kind not in (None, "permission", *REFUSABLE)
        return message if may_be_cut or whole == data else msgspec.json.decode(data, type=type)
    except NOT_JSON as error:
        raise EventError(f"standard input is not a hook of {client.title}: {json_words(error)}") from None


def hook_input(client: HookClient, message: Any, **changed: Any) -> HookInput:
    """The input that a client's message is: the fields it shares with `HookInput`, but for those that are given here.

    Raises EventError for a message that does not name what it is about.
    """
    fields = {name: getattr(message, name) for name in HookInput.__struct_fields__ if hasattr(message, name)}
    given = HookInput(client=client, **{"kind": client.events.get(message.event), **fields, **changed})
    if not given.session_id:
        raise EventError("the hook names no session")
    if given.kind in ("call", "permission", "completed", "failed") and not given.tool_name:
        raise EventError("the hook names no call")
    return given


def log_lines(log: str, *marks: bytes, last: int | None = None) -> Iterator[bytes]:
    """The lines of a client's log, or of its last so many bytes, that have one of these; none of one that cannot be
    read.
    """
    with suppress(OSError, ValueError):
        if Path(log).is_file():  # a pipe would keep every hook waiting
            with open(log, "rb") as file:
                if last is not None:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - last))
                yield from (line for line in file if any(mark in line for mark in marks))


def awaited(read: Callable[[], Decoded], is_whole: Callable[[Decoded], bool], wait_s: float) -> Decoded:
    """What is read of a log once it is whole, or after so many seconds: a client writes it as it starts its hooks."""
    deadline = time.monotonic() + wait_s
    while not is_whole(found := read()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


def as_object(tool_input: Any) -> dict[str, Any]:
    """A tool's input; one that is no object is its `input`."""
    if isinstance(tool_input, dict):
        return tool_input
    return {} if tool_input is None else {"input": tool_input}
