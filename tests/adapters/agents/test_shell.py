"""Command lines as runs: a whole line is evaluated before any of it runs."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import ShellAdapter
from proctor.adapters.kit.client_tools import recorded_tools
from proctor.policies import Allow, Deny, Policy, ToolCall, compile_policy
from proctor.policies.events import RunCompleted, RunFailed, ToolCallCompleted, ToolCallFailed
from proctor.supervisor import Adapter, GateAnswer, ProviderError, ProviderUnavailableError, UsageError, run_once
from proctor.supervisor.testing.adapter_fixture import Drive, Driven

pytestmark = pytest.mark.anyio


async def run(line: str, cwd: Path, *, policy: Policy | None = None, **gate: Any) -> Driven:
    adapter = ShellAdapter(cwd=cwd)
    options = adapter.compile(policy) if policy else None
    return await Drive(adapter, options=options, **gate).run(line)


def made_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_line_is_proposed_whole_and_in_parts_and_then_runs(tmp_path: Path) -> None:
    """The line is a call of `bash`. Each part is a call named after its command, with a number."""
    line = "touch a && ls | cat"
    done = await run(line, tmp_path)
    names = [(call.id, call.name) for call in done.proposed]
    first = done.proposed[1].input

    assert names == [("line", "bash"), ("line.1", "touch"), ("line.2", "ls"), ("line.3", "cat")]
    assert first == {"command": "touch a", "argv": ["touch", "a"], "exact": True, "line": line}
    output = {"exit_code": 0, "stdout": "a\n"}
    assert done.events[-1] == RunCompleted(output=output)
    assert done.outcomes("line") == [ToolCallCompleted(tool_call_id="line", tool_name="bash", tool_output=output)]


@pytest.mark.parametrize("line", [
    *("touch a; rm b", "touch a && echo $(rm b)", "touch a | cat <(rm b)", "touch a; bash -c 'rm b'"),
    *("touch a; env X=1 rm b", "touch a; echo b | xargs rm", "touch a; cat <<E\n$(rm b)\nE"),
    *("touch a; f() { rm b; }; f", "touch a; /bin/rm b", "touch a; \\rm b"),
])  # fmt: skip
async def test_if_any_part_is_denied_nothing_runs(tmp_path: Path, line: str) -> None:
    """Not even earlier parts, whose allowed calls have failed."""
    (tmp_path / "b").touch()
    done = await run(line, tmp_path, refuse={"rm"})

    assert made_in(tmp_path) == ["b"]
    assert done.events[-1] == RunFailed(
        error={"code": "refused", "message": "Tool 'rm' is not available in this context."}
    )
    assert done.proposed[-1].name == "rm"
    for call in done.proposed[:-1]:
        assert [type(outcome) for outcome in done.outcomes(call.id)] == [ToolCallFailed]
    assert done.outcomes(done.proposed[-1].id) == []


@pytest.mark.parametrize(("denied", "line"), [
    *(("rm", "grm b"), ("node", "nodejs x.js"), ("python", "python3.11 x.py"), ("apt-get", "apt remove x")),
    *(("apt", "apt-get remove x"), ("grm", "rm b")),
])  # fmt: skip
async def test_a_program_is_denied_by_its_other_names(tmp_path: Path, denied: str, line: str) -> None:
    """Live and from the log."""
    policy = Policy(name="p", on_violation="deny", tool_rules=[Deny([denied])])
    with pytest.raises(ProviderError) as raised:
        await run_once(ShellAdapter(cwd=tmp_path), line, policies=[policy])
    events = raised.value.partial.events
    monitor = compile_policy(policy, tools=recorded_tools(events)).monitor()

    assert raised.value.details["code"] == "refused"
    assert monitor.propose(ToolCall(id="c", name=line.split()[0], input={})).action == "deny"


async def test_the_whole_line_can_be_denied(tmp_path: Path) -> None:
    """Denying `bash` denies every line, and its parts are not proposed."""
    done = await run("touch a", tmp_path, refuse={"bash"})

    assert [call.name for call in done.proposed] == ["bash"]
    assert made_in(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [("touch a; if", "cannot be parsed"), ("touch a; $X b", "known only when it runs"), ("", "no command")],
)
async def test_an_unparsable_line_does_not_run(tmp_path: Path, line: str, message: str) -> None:
    """Nothing is proposed, and the error says what to do."""
    done = await run(line, tmp_path)

    assert made_in(tmp_path) == []
    assert done.proposed == []
    (failed,) = done.events
    assert isinstance(failed, RunFailed)
    assert failed.error["code"] == "unjudgeable_line"
    assert message in failed.error["message"]


async def test_an_allow_list_may_name_dynamic_commands(tmp_path: Path) -> None:
    """Named, they go to the gate like any call; a wildcard does not name them."""
    named = Policy(name="p", tool_rules=(Allow(("*", "dynamic")),))
    wild = Policy(name="p", tool_rules=(Allow(("*",)), Deny(("rm",))))
    line = "X=touch; $X a"

    denied = await run(line, tmp_path, policy=wild)
    evaluated = await run(line, tmp_path, policy=named, refuse={"dynamic"})
    before = made_in(tmp_path)
    allowed = await run(line, tmp_path, policy=named)

    assert isinstance(denied.events[-1], RunFailed)
    assert isinstance(evaluated.events[-1], RunFailed)
    assert before == []
    assert allowed.proposed[-1].input["exact"] is False
    assert made_in(tmp_path) == ["a"]


async def test_a_line_that_fails_completes_with_its_exit_code(tmp_path: Path) -> None:
    """The call has failed; the run has its output."""
    done = await run("cat missing", tmp_path)

    (line,), (part,) = done.outcomes("line"), done.outcomes("line.1")
    assert isinstance(line, ToolCallFailed)
    assert isinstance(part, ToolCallFailed)
    assert isinstance(done.events[-1], RunCompleted)
    assert done.events[-1].output["exit_code"] == 1


async def test_parts_that_may_not_have_run_have_no_outcome(tmp_path: Path) -> None:
    """`false || true` succeeds, which proves nothing about either part."""
    done = await run("false || true", tmp_path)

    assert [len(done.outcomes(call.id)) for call in done.proposed] == [1, 0, 0]


async def test_the_environment_cannot_redefine_a_command(tmp_path: Path) -> None:
    """Its functions and start-up files are not used."""
    (tmp_path / "start").write_text("touch from-start-up\n")
    injected = {"BASH_FUNC_ls%%": "() { touch evil; }", "BASH_ENV": str(tmp_path / "start")}
    adapter = ShellAdapter(cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "A": "1", **injected})

    done = await Drive(adapter).run("ls; printenv A")

    assert made_in(tmp_path) == ["start"]
    assert isinstance(done.events[-1], RunCompleted)
    assert done.events[-1].output["stdout"] == "start\n1\n"


async def test_a_cancel_while_a_part_is_pending_runs_nothing(tmp_path: Path) -> None:
    """Parts allowed before it have failed; the pending part has no outcome."""

    async def hold(call: ToolCall) -> GateAnswer:
        if call.name == "rm":
            drive.cancel()
            await anyio.sleep_forever()
        return GateAnswer(allowed=True)

    drive = Drive(ShellAdapter(cwd=tmp_path), answer=hold)
    await drive.run("touch a; rm b")

    assert made_in(tmp_path) == []
    assert [len(drive.done.outcomes(call.id)) for call in drive.done.proposed] == [1, 1, 0]


async def test_a_line_that_times_out_has_failed(tmp_path: Path) -> None:
    """By the adapter's own timeout, which it reports."""
    done = await Drive(ShellAdapter(cwd=tmp_path, timeout_s=0.2)).run("sleep 72002")

    assert isinstance(done.events[-1], RunCompleted)
    assert done.events[-1].output["timed_out"] is True


async def test_a_missing_requirement_is_an_error_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory, and bash."""
    with pytest.raises(ProviderUnavailableError, match="there is no working directory"):
        await ShellAdapter(cwd=tmp_path / "gone").prepare()
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ProviderUnavailableError, match="bash"):
        await ShellAdapter().prepare()


def test_its_capabilities_are_declared() -> None:
    """Every call is gated, none rewritten; only an allowed `dynamic` becomes an option."""
    adapter = ShellAdapter()
    options = adapter.compile(Policy(name="p", tool_rules=(Allow(("bash", "dynamic")),)))

    assert isinstance(adapter, Adapter)
    assert (adapter.capabilities.gate, adapter.capabilities.rewrite) == ("all", False)
    assert options.expressed == ("allow dynamic",)
    assert options.unexpressed == ("allow bash",)
    with pytest.raises(UsageError, match="timeout_s"):
        ShellAdapter(timeout_s=0)
