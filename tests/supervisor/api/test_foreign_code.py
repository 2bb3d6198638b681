"""User code may raise anything, including errors that can't be formatted: the supervisor and its other
runs continue.
"""

import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio.abc import TaskStatus
from supervised import OPEN

from proctor.adapters import FunctionAdapter, LoopGate, ScriptedAdapter
from proctor.policies import Check, Policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.policies.values.foreign_code import error_text, isolated
from proctor.supervisor import (
    ApprovalAnswer,
    CancelStep,
    Launch,
    LaunchOptions,
    MemoryStore,
    ProviderError,
    Supervisor,
    UsageError,
)
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, FakeApprover, FakePublisher, Pause

from .test_isolation import beside, cancel_its_task, raise_a_cancel_that_is_over, raise_cancelled

pytestmark = pytest.mark.anyio


class UnspeakableError(Exception):
    """An error without a text or a `repr`."""

    code = property(lambda self: sys.exit("code"))
    details = property(lambda self: sys.exit("details"))

    def __str__(self) -> str:
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise SystemExit(4)


class SilentError(UnspeakableError):
    """An error without a text, but with a `repr`."""

    __repr__ = object.__repr__


class WordlessError(BaseException):
    """Neither an Exception nor a text."""


Raising = Callable[..., Any]


def raises(make: Callable[[], BaseException], name: str) -> Raising:
    """Code that raises when it is called."""

    def raising(*_: Any) -> Any:
        raise make()

    raising.__name__ = name
    return raising


leave = raises(partial(SystemExit, 3), "leave")
unspeakable = raises(SilentError, "unspeakable")
mute = raises(UnspeakableError, "mute")
RAISING = [
    *(leave, unspeakable, mute, raises(KeyboardInterrupt, "interrupt")),
    *(raises(WordlessError, "wordless"), raises(GeneratorExit, "generator_exit")),
    raises(partial(BaseExceptionGroup, "several", [SystemExit(1), ValueError("one")]), "group"),
]
AWAITED = [raise_cancelled, raise_a_cancel_that_is_over, cancel_its_task]


@pytest.fixture(params=RAISING, ids=lambda each: str(each.__name__))
def raising(request: pytest.FixtureRequest) -> Raising:
    found: Raising = request.param
    return found


@pytest.fixture(params=[*RAISING, *AWAITED], ids=lambda each: str(each.__name__))
def failing(request: pytest.FixtureRequest) -> Raising:
    """Code that raises when it is called, or when it is awaited."""
    raises: Raising = request.param

    async def awaited(*_: Any) -> None:
        await raises()
        await anyio.sleep_forever()

    return awaited if raises in AWAITED else raises


async def ended_beside(adapter: Any, policies: Sequence[Policy] = (OPEN,), **given: Any) -> Any:
    """The result of a run beside another."""

    async def run(supervisor: Supervisor) -> Any:
        return await (await supervisor.start(adapter, "go", policies=policies, **given)).wait()

    return await beside(run)


async def error_beside(adapter: Any, kind: type[Exception], words: str | None = None) -> Any:
    """The error of a run beside another."""

    async def run(supervisor: Supervisor) -> Any:
        with pytest.raises(kind, match=words) as raised:
            await (await supervisor.start(adapter, "go", policies=[OPEN])).wait()
        return raised.value

    return await beside(run)


@pytest.mark.parametrize("where", ["capabilities", "compile", "name", "end_orphans"])
async def test_an_adapter_that_fails_before_the_start_raises_at_the_caller(where: str, raising: Raising) -> None:
    """As an Exception, which names the adapter's method if the adapter raised none. Nothing of the start remains."""
    methods: list[Any] = [raising] if where == "compile" else []

    async def start(supervisor: Supervisor) -> None:
        for member in (*methods, property(raising)):
            adapter = type("Failing", (FakeAdapter,), {where: member})()
            with pytest.raises(Exception) as raised:  # noqa: PT011 - any, and no BaseException
                await supervisor.start(adapter, "go", policies=[OPEN], session_id="s")
            assert isinstance(raised.value, Exception)
            if raising not in (unspeakable, mute):
                assert isinstance(raised.value, ProviderError)
                assert f"the adapter's `{where}` failed: " in str(raised.value)
                assert raised.value.__cause__ is not None
        await (await supervisor.start(FakeAdapter(), "go", policies=[OPEN], session_id="s")).wait()

    await beside(start)


@pytest.mark.parametrize("where", ["capabilities", "compile"])
async def test_a_wrong_return_value_of_an_adapter_is_an_error(where: str) -> None:
    values: dict[str, Any] = {"capabilities": {"gate": "all"}, "compile": lambda *_: {"options": {}}}
    adapter = type("Failing", (FakeAdapter,), {where: values[where]})()

    await error_beside(adapter, ValueError, f"`{where}`.*`dict`")


async def undecorated(self: Any, launch: Launch) -> AsyncIterator[Any]:
    yield self


@asynccontextmanager
async def suppressing(self: Any, launch: Launch) -> AsyncIterator[Any]:
    with suppress(Exception):
        yield None


@asynccontextmanager
async def asking_elsewhere(self: Any, launch: Launch) -> AsyncIterator[Any]:
    await anyio.to_thread.run_sync(anyio.run, launch.gate, ToolCall(id="c", name="bash", input={}))
    yield None


@pytest.mark.parametrize(("methods", "words"), [
    ({"prepare": lambda self: None}, "`prepare` gives a `NoneType`"),
    ({"open": undecorated}, "`open` gives a `async_generator`"),
    ({"open": lambda self, launch: nullcontext()}, "session `NoneType` has no method `events`"),
    ({"open": suppressing}, "`open` gave no session that can be read, and hid the error"),
    ({"open": lambda self, launch: nullcontext(self), "cancel_steps": lambda self: (), "events": lambda self: None},
        "`events` gives a `NoneType`"),
    ({"open": asking_elsewhere}, "another thread"),
], ids=["prepare", "opened", "open", "suppressing", "events", "gate"])  # fmt: skip
async def test_a_wrong_value_of_an_adapter_after_the_start_fails_its_run(methods: dict[str, Any], words: str) -> None:
    """The caller and the event log get one error. So does a call from another thread."""
    partial = (await error_beside(type("Odd", (FakeAdapter,), methods)(), UsageError, words)).partial

    assert (partial.status, partial.calls) == ("failed", ())


@pytest.mark.parametrize("member", ["cancel", "wait", "add_net", "cancel_all", "approve", "deny", "subscribe"])
async def test_using_a_run_from_another_thread_is_an_error(member: str, anyio_backend_name: str) -> None:
    """It would use the run's machine beside its event loop, and wait for something that never wakes it. Through the
    run's own event loop, the same code works.
    """
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")

    async def run(supervisor: Supervisor) -> None:
        handle = await supervisor.start(FakeAdapter([Ask(name="bash", id="c1"), Pause()]), "go", policies=policies)
        await anyio.wait_all_tasks_blocked()
        (request,) = supervisor.approvals()
        arguments: dict[str, Any] = {
            "add_net": ("limit read to 1 per turn",),
            "approve": (request.approval_id,),
            "deny": (request.approval_id,),
        }
        of = handle if hasattr(handle, member) else supervisor

        async def use() -> None:
            given = {"by": "ana"} if member in ("approve", "deny") else {}
            used = getattr(of, member)(*arguments.get(member, ()), **given)
            if isinstance(used, Awaitable):
                await used

        with pytest.raises(UsageError, match=f"`{member}` was called in another thread.*`anyio.from_thread.run`"):
            await anyio.to_thread.run_sync(partial(anyio.run, use, backend=anyio_backend_name))
        assert not handle.done
        if member not in ("wait", "cancel_all"):  # end both runs, or wait for their end
            await anyio.to_thread.run_sync(anyio.from_thread.run, use)
        await handle.cancel()
        assert (await handle.wait()).status == "cancelled"

    await beside(run)


class Changing(MemoryStore):
    """Modifies the events that it gets before it stores them."""

    async def append(self, events: Sequence[ev.Event], **owned: Any) -> list[ev.Event]:
        for event in events:
            change(event)
        return await super().append(events, **owned)


def change(event: Any) -> None:
    """Modify the argument in place, as code that removes a secret might."""
    of = getattr(event, "call", event)
    input = getattr(of, "tool_input", None) or getattr(of, "input", None)
    if isinstance(input, dict):
        input["paths"][0] = "/etc"


async def change_and_approve(request: Any) -> ApprovalAnswer:
    change(request)
    return ApprovalAnswer(granted=True, by="ana")


async def change_later(call: ToolCall) -> None:
    change(call)


@pytest.mark.parametrize("who", ["publisher", "store", "approver", "check", "awaited check", "subscriber"])
async def test_modifying_an_argument_does_not_change_the_call(who: str) -> None:
    """The tool gets the input that the agent proposed and the rules evaluated."""
    checks = {"check": (change,), "awaited check": (change_later,)}.get(who, ())
    policy = parse_policies("""
        name: p
        tool_rules:
          - {deny: [{tool: delete, where: [{path: $.paths, within: /etc}]}], action: deny}
          - {deny: [{tool: delete, where: [{path: $.paths, within: /srv}]}], action: request_approval}
    """)[0]
    rules = tuple(Check(check=check, id="own", tool="delete", action="deny") for check in checks)
    ran = []

    async def act(input: dict[str, Any]) -> str:
        ran.append(repr(input))
        return "ok"

    async def loop(gate: LoopGate, prompt: str) -> None:
        given = {"paths": ["/srv/old"]}
        await gate.call("delete", given, act)

    async def subscribe(supervisor: Supervisor, task_status: TaskStatus[None]) -> None:
        async with supervisor.subscribe() as events:
            task_status.started()
            async for event in events:
                change(event)

    store = Changing() if who == "store" else MemoryStore()
    async with anyio.create_task_group() as tasks:
        approver = change_and_approve if who == "approver" else FakeApprover(True)
        async with Supervisor(
            store, approver=approver, publishers=[change] if who == "publisher" else []
        ) as supervisor:
            if who == "subscriber":
                await tasks.start(partial(subscribe, supervisor))
            policies = [policy, *(Policy(name="own", rules=(rule,)) for rule in rules)]
            handle = await supervisor.start(FunctionAdapter(loop), "go", policies=policies)
            result = await handle.wait()
    granted = [event for event in result.events if isinstance(event, ev.ToolApprovalGranted)]

    assert ran == ["{'paths': ['/srv/old']}"]
    assert len(granted) == 1
    assert result.policy.violations == ()


async def test_an_adapter_that_consumes_its_launch_options_has_them_again_in_its_next_run() -> None:
    """Runs under the same policies share a plan, but not its options."""
    seen: list[Any] = []

    class Taking(FakeAdapter):
        def compile(self, policy: Policy) -> LaunchOptions:
            return LaunchOptions(options={"deny": ["bash"]})

        def open(self, launch: Launch) -> Any:
            seen.append(launch.options.options.pop("deny", None))
            return super().open(launch)

    adapter = Taking()
    async with Supervisor(MemoryStore()) as supervisor:
        for _ in range(2):
            await (await supervisor.start(adapter, "go", policies=[OPEN])).wait()

    assert seen == [["bash"], ["bash"]]


async def test_a_publisher_that_raises_is_removed_and_the_others_stay(raising: Raising) -> None:
    """Whatever it raises."""

    class Broken:
        def __call__(self, event: object) -> None:
            raising()

        __eq__ = __hash__ = __repr__ = unspeakable

    seen: list[Any] = []
    later = FakePublisher(fails_at=3)

    async def run(supervisor: Supervisor) -> Any:
        result = await (await supervisor.start(FakeAdapter(), "go", policies=[OPEN], run_id="r")).wait()
        assert supervisor.statistics().publishers_dropped == 2
        return result

    result = await beside(run, publishers=[Broken(), later, seen.append])
    assert len(later.events) == 2
    assert [event for event in seen if event.run_id == "r"] == list(result.events)


async def test_an_approver_that_raises_does_not_approve(
    failing: Raising, request: pytest.FixtureRequest, anyio_backend_name: str
) -> None:
    """If it raises a cancel, the request stays open for others. Any other error declines it."""
    agent = FakeAdapter([Ask(name="bash", id="c1")])
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")

    async def run(supervisor: Supervisor) -> Any:
        handle = await supervisor.start(agent, "go", policies=policies)
        await anyio.wait_all_tasks_blocked()
        waiting = supervisor.approvals()
        for request in waiting:
            await supervisor.approve(request.approval_id, by="ana")
        assert (await handle.wait()).status == "completed"
        return len(waiting)

    raises = request.node.callspec.params["failing"]
    cancels = raises in AWAITED if anyio_backend_name == "asyncio" else raises is raise_a_cancel_that_is_over
    assert await beside(run, approver=failing) == len(agent.ran) == cancels


async def test_a_check_that_raises_denies_its_call(failing: Raising) -> None:
    """The run continues, and its error names the rule."""
    policy = Policy(name="p", rules=(Check(check=failing, id="own", tool="bash", action="deny"),))
    agent = FakeAdapter([Ask(name="bash", id="c1"), Ask(name="read")])
    result = await ended_beside(agent, [policy])

    assert [call.name for call in agent.ran] == ["read"]
    assert [type(event) for event in result.events if isinstance(event, ev.ToolCallDenied)] == [ev.ToolCallDenied]
    assert result.policy.violations[0].rule == "own"


@pytest.mark.parametrize("where", ["validators", "on_results"])
async def test_functions_attached_to_a_net_harm_no_run(raising: Raising, where: str) -> None:
    """A validator that raises denies the call. A result hook that raises only records an error."""
    net = "limit a to 1 per b"
    policies = parse_policies(f"{{name: p, nets: ['{net}'], on_violation: deny}}")
    agent = FakeAdapter([Ask(name="a", id="c1")])
    result = await ended_beside(agent, policies, **{where: {net: raising}})

    assert result.status == "completed"
    assert (agent.ran == []) is (where == "validators")


BOUNDS = {"bound": "soon", "bound without an end": math.inf, "bound of nothing": math.nan}


class FailingCancelSteps(FakeAdapter):
    """An adapter whose list of cancel steps, or one of the steps, fails."""

    def __init__(self, where: str, raising: Raising) -> None:
        super().__init__([ev.MessageReceived(content="at work"), Pause()], rung_s=0.05)
        self.where = where
        self.raising = raising

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Any]:
        async with super()._opened(launch) as provider:
            steps = provider.cancel_steps()
            provider.cancel_steps = lambda: self.cancel_steps(steps)  # type: ignore[method-assign]
            yield provider

    def cancel_steps(self, others: Sequence[CancelStep]) -> Sequence[CancelStep]:
        if self.where == "ladder":
            self.raising()
        if self.where == "ladder of others":
            return [3]  # type: ignore[list-item]
        bound: Any = BOUNDS.get(self.where, 0.05)
        return [CancelStep(name="first", act=self.act, bound_s=bound), *others]

    async def act(self) -> Any:
        if self.where == "evidence":
            return {"left": UnspeakableError(), 1: {object()}}
        if self.where == "awaited":
            await self.raising()
            await anyio.sleep_forever()
        return self.raising() if self.where == "act" else None


@pytest.mark.parametrize(("where", "raising"), [
    *((where, raising) for where in ("ladder", "act", "evidence", "bound") for raising in RAISING),
    *(("awaited", raising) for raising in AWAITED),
    ("ladder of others", leave),
    ("bound without an end", leave),
    ("bound of nothing", leave),
])  # fmt: skip
async def test_a_cancel_step_that_fails_is_followed_by_the_next(where: str, raising: Raising) -> None:
    """One event ends the run, and it has the outcome of each step."""

    async def run(supervisor: Supervisor) -> Any:
        handle = await supervisor.start(FailingCancelSteps(where, raising), "go", policies=[OPEN])
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            async for event in events:
                if isinstance(event, ev.MessageReceived):
                    break
        await handle.cancel(by="ana")
        return await handle.wait()

    result = await beside(run)
    ends = [event for event in result.events if isinstance(event, ev.TERMINAL)]
    assert result.status == "cancelled"
    assert [type(end) for end in ends] == [ev.RunCancelled]
    assert isinstance(ends[0], ev.RunCancelled)
    steps = ["ladder", "abandon"] if where.startswith("ladder") else ["first", "interrupt"]
    assert [step["rung"] for step in ends[0].evidence["rungs"]] == steps
    gives_others = "`cancel_steps` gives a `int`" in str(ends[0].evidence["rungs"][0])
    assert gives_others == (where == "ladder of others")


async def test_an_error_that_cannot_be_formatted_fails_only_its_run() -> None:
    """The caller gets the error itself; the event log has its type."""
    await error_beside(FakeAdapter([Crash(SilentError())]), SilentError)


@pytest.mark.parametrize("kind", ["loop", "loop tool", "scripted tool", "threaded tool"])
async def test_an_in_process_agent_that_exits_ends_only_its_run(kind: str, raising: Raising) -> None:
    """Its loop or one of its tools exits, also while tools run in parallel."""

    async def tool(*_: Any) -> Any:
        raising()

    async def loop(gate: LoopGate, prompt: str) -> Any:
        if kind == "loop":
            raising()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.call, "one", {}, tool)
            tasks.start_soon(gate.call, "two", {}, tool)

    script = {"steps": [{"parallel": [{"call": "one"}, {"call": "two"}]}]}
    adapter: Any = FunctionAdapter(loop)
    if "loop" not in kind:
        function = tool if kind == "scripted tool" else raising
        adapter = ScriptedAdapter(script, tools={"one": function, "two": function})

    async def run(supervisor: Supervisor) -> Any:
        handle = await supervisor.start(adapter, "go", policies=[OPEN], run_id="r")
        await handle.wait_finished()
        events = [event async for event in supervisor._store.read(handle.session_id)]
        assert len([event for event in events if isinstance(event, ev.TERMINAL)]) == 1
        return [event for event in events if isinstance(event, ev.ToolCallFailed)]

    assert len(await beside(run)) == (0 if kind == "loop" else 2)


@pytest.mark.parametrize("of", ["loop", "scripted"])
@pytest.mark.parametrize("member", ["__str__", "model_dump"])
async def test_an_output_that_cannot_be_formatted_is_recorded_as_such(of: str, member: str, raising: Raising) -> None:
    """The call completed, and the run continues."""
    returned = type("Returned", (), {member: raising, "__repr__": raising})()

    async def act(_: Any) -> Any:
        return returned

    async def loop(gate: LoopGate, prompt: str) -> Any:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.call, "one", {}, act)
            tasks.start_soon(gate.call, "two", {}, act)

    script = {"steps": [{"parallel": [{"call": "one"}, {"call": "two"}]}]}
    tools = {"one": lambda: returned, "two": lambda: returned}
    result = await ended_beside(FunctionAdapter(loop) if of == "loop" else ScriptedAdapter(script, tools=tools))
    outputs = [event.tool_output for event in result.events if isinstance(event, ev.ToolCallCompleted)]
    assert outputs == ["a `Returned` that cannot be shown"] * 2


PROGRAM = """
import os, signal, sys, anyio
from proctor.policies import Policy
from proctor.supervisor import MemoryStore, ProviderError, Supervisor
from proctor.supervisor.testing import FakeAdapter, Pause

if sys.argv[2] == "term":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
elif sys.argv[3] == "plain":
    signal.signal(signal.SIGINT, signal.default_int_handler)

def publisher(event):
    os.kill(os.getpid(), signal.SIGTERM if sys.argv[2] == "term" else signal.SIGINT)
    for _ in range(1000):
        pass
    raise KeyboardInterrupt

async def main():
    if sys.argv[3] == "plain":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    async with Supervisor(MemoryStore(), publishers=[publisher]) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[Policy(name="open")])
        await handle.wait()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["int", "term"])
@pytest.mark.parametrize(("backend", "handler"), [("asyncio", "runner's"), ("asyncio", "plain"), ("trio", "plain")])
def test_an_observer_does_not_swallow_a_signal_of_the_program(backend: str, kind: str, handler: str) -> None:
    """If Ctrl-C, or a handler that exits, arrives while an observer is called, the program ends."""
    words = [sys.executable, "-c", PROGRAM, backend, kind, handler]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0, done.stderr
    assert "SystemExit" in done.stderr or "KeyboardInterrupt" in done.stderr or done.returncode in (7, -signal.SIGINT)


def test_the_wrapper_returns_an_exception_unchanged_and_formats_what_it_can() -> None:
    """Only the text may be missing."""
    error = ValueError("mine")

    def fails() -> None:
        raise error

    assert isolated(max, 1, 2) == 2
    with pytest.raises(ValueError, match="mine") as raised:
        isolated(fails)
    assert raised.value is error
    assert error_text(error) == "mine"
    assert error_text(ValueError("a \udcff")) == "a \\udcff"
    assert error_text(UnspeakableError()) == "a `UnspeakableError` that cannot be shown"
