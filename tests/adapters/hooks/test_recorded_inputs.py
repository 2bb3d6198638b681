"""Each client's hook inputs, as documented, and the answers it gets."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from calling import called
from hook_processes import call_of, decider_for
from stored_rows import in_store, stored_events

from proctor.adapters.hooks import decider
from proctor.adapters.hooks.clients import CLIENTS, codex_trust
from proctor.adapters.hooks.settings import install, settings_with_hooks, uninstall
from proctor.policies.events.run_events import ToolCallCompleted, ToolCallFailed, ToolOutcome
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.errors import ApprovalError, UsageError
from proctor.supervisor.ports.processes import as_owner
from proctor.supervisor.ports.stored_types import CLIENT, ApprovalAnswer
from proctor.supervisor.testing.fakes import PATIENCE_S

POLICY = """
name: mine
on_violation: deny
tool_rules:
  - deny: [{tool: bash, where: [{path: $.command, runs: git push}]}]
    tell_model: Leave pushing to a person.
  - {deny: [{tool: bash, where: [{path: $.command, runs: make deploy}]}], action: request_approval}
  - action: warn
    allow: [read, {tool: bash, where: [{path: $.command, runs: [ls, echo]}]}]
"""


class MinutesLater(datetime):
    """The time, two minutes from now."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(minutes=2)


class Session:
    """A session of a client, as recorded inputs."""

    def __init__(self, agent: str, folder: Path, *, hold_s: int = 0, policy: str = POLICY) -> None:
        self.agent = agent
        self.decider = decider_for(folder, policy, unmatched="ask", hold_s=hold_s)
        self.number = 0

    def hook(self, event: str, **fields: Any) -> dict[str, Any]:
        named = {"cursor": "conversation_id"}.get(self.agent, "session_id")
        return self.answer_to({named: "s", "hook_event_name": event, **fields})

    def answer_to(self, data: dict[str, Any]) -> dict[str, Any]:
        answer, given = self.decider.answer_hook(json.dumps(data).encode(), agent=self.agent)
        return CLIENTS[self.agent].output(answer, given)

    def call(self, command: str) -> dict[str, Any]:
        self.number += 1
        return self.answer_to(call_of(self.agent, f"c{self.number}", tool_input={"command": command}))


@pytest.fixture(params=["cursor", "copilot", "codex", "gemini"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    made = Session(request.param, tmp_path)
    yield made
    made.decider.close()


PUSH = "Leave pushing to a person."
REFUSED: dict[str, Any] = {
    "cursor": {"permission": "deny", "agent_message": PUSH},
    "copilot": {"permissionDecision": "deny", "permissionDecisionReason": PUSH},
    "codex": {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
        "permissionDecisionReason": PUSH}},
    "gemini": {"decision": "deny", "reason": PUSH},
}  # fmt: skip
OPENED: dict[str, Any] = {
    "cursor": {"permission": "allow"},
    "copilot": {
        "permissionDecision": "allow",
        "permissionDecisionReason": "proctor: allowed by policy `mine`, rule `allow-1`",
    },
    "codex": {},
    "gemini": {},
}


def test_each_answer_has_the_clients_format(session: Session) -> None:
    """For a push, the model gets the policy's text. An explicit allow is sent if the client supports it. A call that
    nothing allows is left to the client; Cursor gets that at its own question about the command. A call that needs
    approval is denied if the client can't ask its user for a hook.
    """
    pushes = [session.call(command) for command in ("git push", "ls && git push", "sh -c 'git push'")]
    allowed, unknown = session.call("ls && echo a"), session.call("curl example.com")
    approval = json.dumps(session.call("make deploy"))
    refused, asks = REFUSED[session.agent], CLIENTS[session.agent].asks

    assert [{name: output.get(name) for name in refused} for output in pushes] == [refused] * 3
    assert allowed == OPENED[session.agent]
    assert "deny" not in json.dumps(unknown)
    assert unknown.get("permissionDecision") is None
    assert ('"ask"' in approval, '"deny"' in approval) == (asks, not asks)
    if session.agent == "cursor":
        assert session.hook("beforeShellExecution", command="curl example.com") == {"permission": "ask"}


@pytest.mark.parametrize("agent", ["codex", "cursor"])
def test_the_clients_own_question_is_skipped_for_an_allowed_call(agent: str, tmp_path: Path) -> None:
    """For that call and input, once it was evaluated, and not if it leaves the sandbox."""
    session = Session(agent, tmp_path)
    if agent == "codex":
        allowed: Any = {
            "hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
        }
        asks: Any = {}

        log = tmp_path / "rollout.jsonl"
        written = {"type": "function_call", "call_id": "c1", "arguments": '{"cmd": "ls"}'}
        log.write_text(json.dumps({"payload": written}) + "\n")

        def question(command: str, **more: Any) -> Any:
            given = {"tool_name": "Bash", "tool_input": {"command": command, **more}, "transcript_path": str(log)}
            return session.hook("PermissionRequest", **given)
    else:
        allowed, asks = {"permission": "allow"}, {"permission": "ask"}

        def question(command: str, **more: Any) -> Any:
            return session.hook("beforeShellExecution", command=command, **more)

    before = question("ls")
    session.call("ls")
    outputs = [question("ls"), question("ls -l"), question("git push")]
    outside = [asks]
    if agent == "codex":
        another = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "another"}
        outside = [question("ls", description="I need the network"), session.hook("PermissionRequest", **another)]
        described = {"command": "ls -a", "description": "I need the network"}
        session.answer_to(call_of(agent, "described", tool_input=described))
        outside.append(question(**described))
    session.decider.close()

    assert (before, outputs) == (asks, [allowed, asks, asks])
    assert outside == [asks] * len(outside)


ESCALATED = {"type": "function_call", "call_id": "c1", "arguments": '{"sandbox_permissions": "require_escalated"}'}
PLAIN = {"type": "function_call", "call_id": "c2", "arguments": "{}"}
OVER = {"type": "function_call_output", "call_id": "c1"}


@pytest.mark.parametrize(("sandbox", "lines", "allowed"), [
    ("workspace-write", [PLAIN], False),  # of the other, as of a script's, nothing is known
    ("workspace-write", [ESCALATED, PLAIN], False),
    ("workspace-write", [ESCALATED, {**PLAIN, "call_id": "c1"}, PLAIN], False),  # two calls with one id
    ("workspace-write", [ESCALATED, OVER, {**PLAIN, "call_id": "c1"}, PLAIN], True),
    ("workspace-write", [{**PLAIN, "call_id": "c1"}, PLAIN], True),
    ("danger-full-access", [], True),
])  # fmt: skip
def test_codexs_question_stays_if_a_command_may_leave_the_sandbox(
    sandbox: str, lines: list[dict[str, Any]], allowed: bool, tmp_path: Path
) -> None:
    """Its model need not give a reason, and two calls of one command can't be told apart at the question."""
    session, log = Session("codex", tmp_path), tmp_path / "rollout.jsonl"
    context = {"type": "turn_context", "payload": {"sandbox_policy": {"type": sandbox}}}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in (context, *({"payload": one} for one in lines))))
    session.call("ls")
    session.call("ls")
    question = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "transcript_path": str(log)}
    output = session.hook("PermissionRequest", **question)
    session.decider.close()

    assert bool(output) is allowed


@pytest.mark.parametrize("granted", [True, False, None], ids=["yes", "no", "nobody"])
def test_a_cursor_call_waits_for_an_answer_from_elsewhere(granted: bool | None, tmp_path: Path) -> None:
    """Before the call. Once it is approved, Cursor's own question about it is skipped."""
    session = Session("cursor", tmp_path, hold_s=60 if granted is not None else 1)
    data = call_of("cursor", "c1", tool_input={"command": "make deploy"})
    client = as_owner(os.getpid(), CLIENT)
    answer, given = session.decider.answer_hook(json.dumps(data).encode(), client, agent="cursor")
    early = session.decider.resolve_held(given, answer.held)
    if granted is not None:
        by_ana = ApprovalAnswer(granted=granted, by="ana")
        in_store(tmp_path / "store.db", lambda store: approval_inbox.record_answer(store, answer.held, by_ana))
    heard = early
    deadline = time.monotonic() + PATIENCE_S
    while heard is None and time.monotonic() < deadline:
        heard = session.decider.resolve_held(given, answer.held)
    assert heard is not None
    output = CLIENTS["cursor"].output(heard, given)
    question = session.hook("beforeShellExecution", command="make deploy")
    session.decider.close()

    assert early is None
    assert output["permission"] == ("allow" if granted else "deny")
    assert question == {"permission": "allow" if granted else "ask"}


@pytest.mark.parametrize("granted", [True, None], ids=["yes", "nobody"])
def test_the_answer_to_a_call_that_waits_is_no_others(
    granted: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is up when the hook of another call comes, which is denied. Its own hook hears of no approval; the log
    has the one that came in time.
    """
    session = Session("cursor", tmp_path, hold_s=600, policy=f"{POLICY}approval: {{timeout_s: 60}}\n")
    data = call_of("cursor", "c0", tool_input={"command": "make deploy"})
    answer, given = session.decider.answer_hook(
        json.dumps(data).encode(), as_owner(os.getpid(), CLIENT), agent="cursor"
    )
    if granted:
        by_ana = ApprovalAnswer(granted=True, by="ana")
        in_store(tmp_path / "store.db", lambda store: approval_inbox.record_answer(store, answer.held, by_ana))
    monkeypatch.setattr(decider, "datetime", MinutesLater)
    other = session.call("git push")
    heard = session.decider.resolve_held(given, answer.held)
    session.decider.close()

    assert {**other, **REFUSED["cursor"]} == other
    assert heard is not None
    assert heard.verdict == "deny"
    closed = [
        event.type
        for event in in_store(tmp_path / "store.db", stored_events)
        if event.type.startswith("tool_approval")
    ]
    assert closed[1:] == ["tool_approval_granted" if granted else "tool_approval_expired"]


@pytest.mark.parametrize("agent", [name for name, client in CLIENTS.items() if client.asks and client.hears is None])
def test_a_question_that_the_client_alone_asks_is_not_answered_elsewhere(agent: str, tmp_path: Path) -> None:
    """Nobody would tell it of the answer, which would count before its person's."""
    session = Session(agent, tmp_path)
    session.call("make deploy")
    (request,) = in_store(tmp_path / "store.db", approval_inbox.pending)
    by_ana = ApprovalAnswer(granted=True, by="ana")
    with pytest.raises(ApprovalError) as raised:
        in_store(
            tmp_path / "store.db", lambda store: approval_inbox.record_answer(store, request.approval_id, by_ana)
        )
    session.decider.close()

    assert raised.value.kind == "asks_itself"


@pytest.mark.parametrize("agent", [name for name, client in CLIENTS.items() if not client.asks])
def test_a_client_that_cannot_ask_its_person_denies_what_needs_an_approval(agent: str, tmp_path: Path) -> None:
    """Unless its hook waits for an answer from elsewhere."""
    session = Session(agent, tmp_path)
    data = call_of(agent, "c1", tool_input={"command": "make deploy"})
    answer, _ = session.decider.answer_hook(json.dumps(data).encode(), agent=agent)
    session.decider.close()

    assert (answer.verdict, answer.held) == ("deny", "")


def test_two_clients_with_one_session_id_are_each_judged_by_their_own_names(tmp_path: Path) -> None:
    """The session that the daemon keeps in memory is of one client: a shell has another name in each."""
    session = Session("claude", tmp_path)
    for agent in ("claude", "gemini", "claude"):
        session.agent = agent
        assert PUSH not in json.dumps(session.call("ls"))
        assert PUSH in json.dumps(session.call("git push"))
        (kept, _), *_ = session.decider._sessions.values()
        assert kept.client is CLIENTS[agent]
    session.decider.close()


@pytest.mark.parametrize("agent", ["copilot", "gemini"])
def test_an_outcome_without_an_id_belongs_to_the_call_with_its_input(agent: str, tmp_path: Path) -> None:
    """Of two calls of a tool, the second ends first; both have ended. With another input, it belongs to a call that
    ran with that.
    """
    session = Session(agent, tmp_path)
    for command in ("ls", "echo a"):
        session.call(command)
    event, tool = {"copilot": ("PostToolUse", "bash"), "gemini": ("AfterTool", "run_shell_command")}[agent]
    for command in ("echo a", "ls"):
        session.hook(event, tool_name=tool, tool_input={"command": command})
    (kept, _), *_ = session.decider._sessions.values()
    none_left = not kept.machine.calls and kept.has_run
    session.call("pwd")
    session.hook(event, tool_name=tool, tool_input={"command": "rm x"})
    session.decider.close()

    assert none_left
    assert not kept.has_run


SHOWN = {"interrupted": False, "isImage": False, "noOutputExpected": False}


@pytest.mark.parametrize(("tool", "result", "output"), [
    ("Bash", {**SHOWN, "stdout": "a\nb", "stderr": ""}, "a\nb"),
    ("Bash", {**SHOWN, "stdout": "a", "stderr": "\nShell cwd was reset to /w"}, "a\nShell cwd was reset to /w"),
    ("Bash", {**SHOWN, "stdout": "", "stderr": ""}, ""),
    ("Bash", {**SHOWN, "stdout": "", "stderr": "", "backgroundTaskId": "b"},
        {**SHOWN, "stdout": "", "stderr": "", "backgroundTaskId": "b"}),
    ("mcp__s__t", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ("mcp__s__t", '{"sum":3}', '{"sum":3}'),
    ("Read", {"type": "pdf", "file": {"base64": "a"}}, {"type": "pdf", "file": {"base64": "a"}}),
])  # fmt: skip
def test_outputs_of_claude_are_those_of_a_run(tool: str, result: Any, output: Any) -> None:
    """Its hooks have the parts of a command's output, and of a server's."""
    given = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": tool, "tool_use_id": "c"}

    assert CLIENTS["claude"].read(json.dumps({**given, "tool_response": result}).encode()).tool_response == output


@pytest.mark.parametrize(("text", "kind"), [
    ("Output: tested", "completed"),
    ("Output: Exit Code: 1\nExit Code: 0\nSignal: (none)", "completed"),
    ("Output: no\nExit Code: 1", "failed"),
    ("Output: no\nExit Code: (none)\nSignal: SIGKILL", "failed"),
    ("Command was cancelled by user before it could complete. Below is the output", "failed"),
    ("Command was automatically cancelled because it exceeded the timeout", "failed"),
    ("Command injection detected: ... This is a security risk and the command was blocked.", "failed"),
    ("It tells the model that all tests have passed.", "failed"),
    ("<untrusted_context>\nOutput: \nProcess Group PGID: 7\n</untrusted_context>", "completed"),
    ("Command moved to background (PID: 7). Output hidden.", "completed"),
])  # fmt: skip
def test_gemini_reports_a_failed_or_interrupted_command_only_in_text(text: str, kind: str) -> None:
    """As it tells the model, or that it blocked the command itself. A file with such a text was read successfully."""
    given = {"session_id": "s", "hook_event_name": "AfterTool", "tool_name": "run_shell_command"}

    result = {"tool_response": {"llmContent": text}}
    read_file = {**given, "tool_name": "read_file"}

    assert CLIENTS["gemini"].read(json.dumps({**given, **result}).encode()).kind == kind
    assert CLIENTS["gemini"].read(json.dumps({**read_file, **result}).encode()).kind == "completed"


@pytest.mark.parametrize(("tool", "code", "event"), [
    ("Bash", 0, "completed"), ("Bash", 3, "failed"), ("bash", 137, "failed"), ("Read", 3, "completed"),
])  # fmt: skip
def test_copilot_reports_a_failed_command_only_in_text(tool: str, code: int, event: str) -> None:
    """As it tells the model, after the command's output. A file that ends so was read successfully."""
    text = f"<shellId: 1 completed with exit code {3 - code}>\n<shellId: 0 completed with exit code {code}>"
    given = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": tool}
    result = {"result_type": "success", "text_result_for_llm": text}

    assert CLIENTS["copilot"].read(json.dumps({**given, "tool_result": result}).encode()).kind == event


@pytest.mark.parametrize("other", [True, False], ids=["another daemon", "the same daemon"])
def test_subagents_of_copilot_are_recognised_by_a_daemon_that_has_forgotten_them(
    other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names only its parent. The end or the prompt of one is not the session's."""
    monkeypatch.setattr(decider, "_MOST_ROOTS", 1)
    last: list[tuple[str, str]] = []
    session = Session("copilot", tmp_path)
    for number, above in enumerate(("", "s", "a1", "a2")):
        session = Session("copilot", tmp_path) if other else session
        names = {"session_id": f"a{number}", "parent_agent_id": above} if above else {}
        for event in ("UserPromptSubmit", "Stop", "SessionEnd")[: 3 if above else 1]:
            session.hook(event, **names)
        session.hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, **names)
        last = [(id, kept.run_id) for id, (kept, _) in session.decider._sessions.items()]
        assert len(session.decider._roots) <= 2
        if other:
            session.decider.close()
    session.decider.close()

    assert last == [("s", "s-1")]


def test_a_call_without_an_outcome_has_failed_when_its_response_ends(session: Session, tmp_path: Path) -> None:
    """Of a client that does not report which calls of a response have ended."""
    session.call("ls")
    session.hook(next(event for event, kind in CLIENTS[session.agent].events.items() if kind == "stop"))
    types = [event.type for event in in_store(tmp_path / "store.db", stored_events)]

    assert [type for type in types if type.endswith(("_failed", "_completed"))] == [
        *("tool_call_failed", "turn_completed", "run_completed")
    ]


THEIRS = '{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}'
SETTINGS = [
    *('{"a":1}', '{\n\t"hooks": {"x": [{"command": "y"}]}, "env": {"A": "b"}}', "{}", '{"version":1}'),
    *(
        f'{{"requiredMinimumVersion": "{version}", "allowManagedHooksOnly": false}}'
        for version in ("2.1.99", "3.0.0")
    ),
    f'{{"model": "opus", "hooks": {{"PreToolUse": [{THEIRS}], "beforeShellExecution": [{THEIRS}]}}}}',
]


@pytest.mark.parametrize(("agent", "managed"), [
    *((agent, False) for agent in ("claude", "codex", "gemini", "cursor", "copilot")), ("claude", True),
])  # fmt: skip
@pytest.mark.parametrize("text", SETTINGS)
def test_hooks_are_installed_and_removed_byte_for_byte(agent: str, managed: bool, text: str, tmp_path: Path) -> None:
    """Installing twice changes nothing, other hooks stay in force, and so do changes made meanwhile."""
    client, path = CLIENTS[agent], tmp_path / "settings.json"
    (folder := tmp_path / "store").mkdir()
    wanted = settings_with_hooks([tmp_path / "p.yaml"], folder / "s.db", client=client, managed=managed)
    path.write_text(text)
    first, again = install(path, wanted, client), install(path, wanted, client)
    installed = json.loads(path.read_text()).get("hooks", {})
    out = [uninstall(path, client), uninstall(path, client)]
    back = path.read_text()
    install(path, wanted, client)
    path.write_text(json.dumps({**json.loads(path.read_text()), "mine": 1}))
    uninstall(path, client)

    assert (first, again, out, back) == (True, False, [True, False], text)
    for event, theirs in json.loads(text).get("hooks", {}).items():
        assert installed[event][: len(theirs)] == theirs
        assert len(installed[event]) == len(theirs) + len(wanted["hooks"].get(event, ()))
    assert json.loads(path.read_text()) == {**json.loads(text), "mine": 1}
    assert [one.name for one in tmp_path.iterdir() if one != folder] == ["settings.json"]


@pytest.mark.parametrize("agent", sorted(CLIENTS))
def test_the_page_lists_what_each_client_runs_ungated(agent: str) -> None:
    """In the client's section. Its row of the table lists its capabilities."""
    page = (Path(__file__).parents[3] / "docs" / "agents" / "interactive.md").read_text()
    client = CLIENTS[agent]
    [row] = [line for line in page.splitlines() if line.startswith("| ") and f"(`{agent}`)" in line]
    gaps = page.partition(f"\n### {client.title}\n")[2].partition("\n#")[0]

    assert row.startswith(f"| {client.title} ")
    assert [one for one in client.fails_open if one not in gaps] == []
    assert ("asks you" in row) is client.asks
    assert (row.split(" | ")[2] == "no") is (client.opens is None)
    assert (row.split(" | ")[3] != "no") is (client.usage is not None or client.tells_usage)


def test_the_trust_entry_for_codex_is_removed_from_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of its file stays; an unparsable file is left alone."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    config, settings = tmp_path / "config.toml", tmp_path / "hooks.json"
    before, after = '# mine\nmodel = "x"\n', "\n[tui]\nscreen_reader_detection_done = true\n"
    states = [f'[hooks.state."{settings}:{event}:0:0"]\ntrusted_hash = "sha256:0"\n' for event in ("a", "b", "c")]
    config.write_text(before)
    codex_trust.back_up_config(CLIENTS["codex"].settings)
    config.write_text("\n".join([f"{before}\n[hooks.state]", *states]) + after)
    codex_trust.distrust(CLIENTS["codex"].settings, settings)
    done = config.read_text()
    config.write_text(strange := f"{before}[hooks]\nstate = {{ '{settings}:a:0:0' = {{ trusted_hash = 'x' }} }}\n")

    assert done == before + after
    with pytest.raises(UsageError):
        codex_trust.distrust(CLIENTS["codex"].settings, settings)
    assert config.read_text() == strange


Status = Callable[[str], Callable[[], str]]


@pytest.fixture
def installed_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Status:
    """User hooks of an agent, and their status in a separate folder, `work`."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr("proctor.adapters.cli.commands.hook._probed", lambda line, shell: (True, "judged"))

    def hook(agent: str, command: str, *options: str) -> str:
        return str(called(capsys, "hook", command, "--agent", agent, *options).out)

    def put(agent: str) -> Callable[[], str]:
        given = ("--policy", str(tmp_path / "policy.yaml"), "--store", str(tmp_path / "s.db"))
        hook(agent, "install", "--user", *given)
        return lambda: hook(agent, "status")

    return put


def test_a_subagent_of_codex_is_denied_once_its_run_was_cancelled(tmp_path: Path) -> None:
    """It has its own turns, so it is recognised by its id. The user's next prompt starts a run that continues."""
    session = Session("codex", tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY.replace("on_violation: deny", "on_violation: cancel"))

    def call(number: int, command: str, **more: Any) -> bool:
        given = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"c{number}", **more}
        return "deny" not in json.dumps(session.hook("PreToolUse", **given))

    session.hook("UserPromptSubmit", prompt="go", turn_id="t1")
    session.hook("UserPromptSubmit", prompt="help", turn_id="t2", agent_id="a")
    before = call(1, "ls", turn_id="t2", agent_id="a")
    pushed = call(2, "git push", turn_id="t1")
    after = call(3, "ls", turn_id="t2", agent_id="a")
    session.hook("UserPromptSubmit", prompt="on", turn_id="t3")
    later = call(4, "ls", turn_id="t3")
    (kept, _), *_ = session.decider._sessions.values()
    session.decider.close()

    assert (before, pushed, after, later) == (True, False, False, True)
    assert kept.runs == 2


LOGGED = {
    "call": {"type": "function_call", "name": "exec_command", "call_id": "c1"},
    "older call": {"type": "local_shell_call", "call_id": "c1"},
    "0": {"type": "item_completed", "item": {"type": "CommandExecution", "id": "c1", "exit_code": 0}},
    "7": {"type": "item_completed", "item": {"type": "CommandExecution", "id": "c1", "exit_code": 7}},
    "another": {"type": "item_completed", "item": {"type": "CommandExecution", "id": "c10", "exit_code": 0}},
    "text": {"type": "message", "content": '{"type":"CommandExecution","id":"c1","exit_code":0}'},
}


@pytest.mark.parametrize(("lines", "end"), [
    (("call", "0"), "succeeded"), (("call", "7"), "failed"), (("call", "0", "call", "7"), "failed"),
    (("call", "0", "call"), "unknown"), (("call", "another", "text"), "unknown"), ((), "unknown"),
    (("older call", "0", "older call"), "unknown"), (("older call", "0"), "succeeded"),
])  # fmt: skip
def test_a_command_of_codex_has_succeeded_if_its_log_says_so(
    lines: tuple[str, ...], end: str, tmp_path: Path
) -> None:
    """Otherwise only its output counts. Log entries of another call, or of an earlier one with the same id, are
    ignored.
    """
    (log := tmp_path / "log").write_text("".join(json.dumps({"payload": LOGGED[line]}) + "\n" for line in lines))
    session = Session("codex", tmp_path)
    session.call("ls")
    given = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1", "tool_response": "a"}
    session.hook("PostToolUse", transcript_path=str(log) if lines else None, **given)
    session.decider.close()
    [outcome] = [event for event in in_store(tmp_path / "store.db", stored_events) if isinstance(event, ToolOutcome)]

    if end == "failed":
        assert isinstance(outcome, ToolCallFailed)
        assert outcome.error == {"exit_code": 7, "output": "a"}
    else:
        assert isinstance(outcome, ToolCallCompleted)
        assert (outcome.tool_output, outcome.unfinished) == ("a", end == "unknown")


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
@pytest.mark.parametrize("changes", [1, [1], [{"path": "elsewhere"}]])
def test_the_changes_of_a_codex_patch_are_those_of_its_text(event: str, changes: Any) -> None:
    """None of what stands beside it, or in its place."""
    given = {"tool_name": "apply_patch", "tool_use_id": "c", "tool_input": {"changes": changes}, "tool_response": "a"}
    hook = {"session_id": "s", "hook_event_name": event, "cwd": "/w", **given}
    read = CLIENTS["codex"].read(json.dumps(hook).encode())

    assert (read.tool_input["changes"], read.tool_response) == ([], "a")


def test_each_line_of_codexs_log_is_read_once(tmp_path: Path) -> None:
    """However long the session is, a command costs the same. The client may write its log anew."""
    log = tmp_path / "rollout.jsonl"

    def logged(*lines: dict[str, Any]) -> bytes:
        return "".join(f"{json.dumps({'payload': line})}\n" for line in lines).encode()

    def folder(call_id: str) -> Any:
        given = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": call_id}
        message = {"session_id": "s", "hook_event_name": "PreToolUse", "transcript_path": str(log), **given}
        return CLIENTS["codex"].read(json.dumps(message).encode()).tool_input.get("workdir")

    calls = [
        {"type": "function_call", "call_id": f"c{n}", "arguments": json.dumps({"workdir": f"/f{n}"})}
        for n in range(4)
    ]
    log.write_bytes(logged(*calls[:2]))
    seen = [folder("c0")]
    log.write_bytes(b" " * log.stat().st_size + logged(calls[2]))
    seen += [folder("c1"), folder("c2")]
    log.write_bytes(logged(calls[3]))
    seen.append(folder("c3"))

    assert seen == ["/f0", "/f1", "/f2", "/f3"]


@pytest.mark.parametrize("name", ["spawn_agent", "collaborationspawn_agent"])
def test_starting_a_subagent_of_codex_is_a_task(name: str, tmp_path: Path) -> None:
    """By either of its hooks' names."""
    session = Session("codex", tmp_path)
    (tmp_path / "policy.yaml").write_text("{name: p, on_violation: deny, tool_rules: [{deny: [task]}]}")
    output = session.hook("PreToolUse", tool_name=name, tool_input={"message": "help"}, tool_use_id="c1")
    session.decider.close()

    assert output["hookSpecificOutput"]["permissionDecision"] == "deny"


OFF = "hooks are switched off in `{}`"
RIVAL = "`{}` can change what is decided here"
FOLDERS: list[tuple[str, str, dict[str, str]]] = [
    ("claude", ".claude/settings.json", {'{"a": 1}': "", '{"disableAllHooks": true}': OFF, "[]": "{}", "{": "{}"}),
    ("gemini", ".gemini/settings.json", {'{"a": 1}': "", '{"hooksConfig": {"enabled": false}}': OFF, "[]": "{}"}),
    ("copilot", ".github/copilot/settings.json", {"{}": "", '{"disableAllHooks": true}': OFF, "{": "{}"}),
    ("claude", ".claude/settings.json", {"{}": "", '{"hooks": {"PermissionRequest": []}}': RIVAL}),
    ("claude", ".claude/settings.json", {'{"hooks": {"PreToolUse": []}}': RIVAL}),
    ("gemini", ".gemini/settings.json", {"{}": "", '{"hooks": {"BeforeTool": []}}': RIVAL}),
    ("claude", ".claude/settings.json", {'{"env": {"LD_TRACE_LOADED_OBJECTS": ""}}': RIVAL}),
    (
        "claude",
        ".claude/skills/x/SKILL.md",
        {"---\nname: x\n---": "", "---\nhooks: {PermissionRequest: []}\n---": RIVAL},
    ),
    ("claude", ".claude/commands/a/x.md", {"go": "", "---\nhooks: {PermissionRequest: []}\n---\ngo": RIVAL}),
    ("cursor", ".cursor/hooks.json", {"{}": "", '{"hooks": {"preToolUse": [{"command": "true"}]}}': RIVAL}),
    ("opencode", ".opencode/plugins/theirs.ts", {"export const Theirs = async () => ({})": RIVAL}),
    ("opencode", "opencode.json", {"{}": "", '{"plugin": ["theirs"]}': RIVAL}),
    ("opencode", "tui.json", {"{}": "", '{"plugin": ["./theirs.js"]}': RIVAL}),
    ("opencode", ".opencode/opencode.jsonc", {"{}": "", '{"permission": "allow"} // all of it': RIVAL}),
]
"""For an agent: a file in a folder, and what the status says with it."""


@pytest.mark.parametrize(("agent", "name", "texts"), FOLDERS)
def test_status_names_the_file_of_a_folder_that_can_change_decisions(
    agent: str, name: str, texts: dict[str, str], tmp_path: Path, installed_for: Status
) -> None:
    """It disables the user's hooks, adds hooks and plugins, or sets permissions. Invalid settings leave this open and
    count as disabled. A harmless file is not named.
    """
    status = installed_for(agent)
    file = tmp_path / "work" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    before = status()
    for text, says in texts.items():
        file.write_text(text)
        shown = status()
        assert (": active" in shown) is (says in ("", RIVAL)), text
        assert says.format(file) in shown
        assert (str(file) in shown) is bool(says)

    assert ": active" in before
    assert str(file) not in before


def test_status_reports_unreadable_settings_of_a_folder(tmp_path: Path, installed_for: Status) -> None:
    """Such as a link to itself in a repository."""
    status, file = installed_for("claude"), tmp_path / "work" / ".claude" / "settings.local.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(file.name)

    assert f"`{file}` cannot be read: too many levels of symbolic links" in status()


def test_a_repository_cannot_name_the_hooks_of_gemini(tmp_path: Path) -> None:
    """`hooksConfig.disabled` of a folder disables hooks by name, even managed ones."""
    found = [
        settings_with_hooks([tmp_path / "p.yaml"], tmp_path / id, client=CLIENTS["gemini"])["hooks"] for id in "ab"
    ]
    names = [{one["name"] for [entry] in each.values() for one in entry["hooks"]} for each in found]

    assert not names[0] & names[1]
    assert "proctor" not in names[0] | names[1]


TYPED = [
    ("refund A7", "/pay"),
    ("refund A7\n\n/pay B8", "/pay B8"),
    ("check B8 twice: B8", "/team:check B8"),
    ("check B8 twice: B9", "check B8 twice: B9"),
    ("the diff:\nrefund A7\nis it good?\n\n/review B8", "/review"),
    ("sum up\nthis", "/lines"),
    ("both", ""),
    ("I want a refund A7", "I want a refund A7"),
]


@pytest.mark.parametrize(("prompt", "typed"), TYPED)
def test_of_a_gemini_slash_command_only_its_name_and_arguments_are_the_users_text(
    prompt: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's text becomes the prompt, with the files and outputs it includes. A text that several commands
    could have produced is nobody's.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    texts = {
        "work/.gemini/commands/pay.toml": 'prompt = "refund A7"',
        "work/.gemini/commands/team/check.toml": 'prompt = "check {{args}} twice: {{args}}"',
        "work/.gemini/extensions/x/commands/review.toml": 'prompt = "the diff:\\n!{git diff}\\nis it good?"',
        "home/.gemini/commands/lines.toml": 'prompt = """\nsum up\r\nthis"""',
        "home/.gemini/commands/one.toml": 'prompt = "both"',
        "home/.gemini/commands/other.toml": 'prompt = "{{args}}oth"',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, newline="")
    for link in ("a", "b"):  # expanded in each other, they would never end
        (tmp_path / "work" / ".gemini" / "commands" / link).symlink_to(".")
    message = {"hook_event_name": "BeforeAgent", "session_id": "s", "cwd": str(tmp_path / "work"), "prompt": prompt}
    found = CLIENTS["gemini"].read(json.dumps(message).encode()).prompt
    unread = []
    broken = tmp_path / "work" / ".gemini" / "commands" / "broken.toml"
    for make in (lambda: broken.write_text("no TOML"), lambda: os.mkfifo(broken)):
        broken.unlink(missing_ok=True)
        make()
        unread.append(CLIENTS["gemini"].read(json.dumps(message).encode()).prompt)

    assert found == typed
    assert {*unread} <= {"", "/broken"}
