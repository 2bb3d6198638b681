"""Who may approve, and what one approval covers: the policy decides, whatever interface the answer comes from."""

from typing import Any

import anyio
import pytest
from answering import kind, until_held

from proctor.policies import Policy, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies.events import Event, ToolApprovalGranted, ToolApprovalRequested
from proctor.policies.events.run_context import Capabilities, Tool
from proctor.supervisor import MemoryStore, RunHandle, Supervisor, cancel_for_approval, pending, run_once
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, FakeApprover, Pause

pytestmark = pytest.mark.anyio


def asking(**approval: Any) -> list[Policy]:
    """A policy under which `bash` and `deploy` need approval, `deploy` separately for each target."""
    rules = [
        {"type": "blocklist", "id": "bash", "tools": ["bash"]},
        {"type": "count", "id": "deploy", "tool": "deploy", "max": 0, "key": "$.to"},
    ]
    return parse_policies({"name": "p", "on_violation": "request_approval", "approval": approval, "rules": rules})


ANYONE_OF = {"approvers": ["ana", "@sre"]}


@pytest.mark.parametrize(("approval", "user", "refused", "counts"), [
    (ANYONE_OF, None,
        [{"by": "eve"}, {"by": "eve", "granted": False}, {"by": "sre"}, {"by": "@sre"},
            {"by": "eve", "groups": ("dev",)}],
        {"by": "bob", "groups": ("dev", "sre")}),
    (ANYONE_OF, None, [{"by": "bob", "groups": ("@dev",)}], {"by": "bob", "groups": ("@sre",)}),
    (ANYONE_OF, None, [], {"by": "ana"}),
    ({"four_eyes": True}, "ana", [{"by": "ana"}], {"by": "bob"}),
    ({"four_eyes": True}, None, [{"by": "ana"}, {"by": "bob"}], None),
    ({}, None, [{"scope": "session"}, {"scope": "run"}], {"scope": "once"}),
], ids=[
    *("a group", "a group with @", "a name", "who started it", "nobody knows who started it", "more than is allowed"),
])  # fmt: skip
async def test_an_answer_counts_if_the_policy_allows_its_author(
    approval: dict[str, Any], user: str | None, refused: list[dict[str, Any]], counts: dict[str, Any] | None
) -> None:
    """By name, or by a group that the interface reports; for approvals and denials alike. With `four_eyes`, the
    person who started the run can't answer, and nobody can if that person is unknown. An approval with a wider scope
    than the policy allows does not count; the default scope is one call.
    """
    store, adapter = MemoryStore(), FakeAdapter([Ask(id="c1", name="bash")])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=asking(**approval), context=RunContext(user=user))
        request = await until_held(supervisor)
        kinds = [await kind(store, request.approval_id, **answer) for answer in refused]
        untouched = list(adapter.ran)
        if counts:
            kinds.append(await kind(store, request.approval_id, **counts))
            await handle.wait()
        await handle.cancel()

    assert request.approvers == (("ana", "@sre") if approval == ANYONE_OF else None)
    assert (kinds, untouched) == (["not_allowed"] * len(refused) + ["counts"] * bool(counts), [])
    assert [call.id for call in adapter.ran] == (["c1"] if counts else [])
    assert await pending(store) == []


async def test_an_approver_in_the_process_is_checked_too() -> None:
    """Its answer does not count, and the call stays pending."""
    store = MemoryStore()
    adapter = FakeAdapter([Ask(id="c1", name="bash")])
    eve = FakeApprover(True, by="eve")
    async with Supervisor(store, approver=eve) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=asking(approvers=["ana"]))
        request = await until_held(supervisor)
        await anyio.wait_all_tasks_blocked()
        before = list(adapter.ran)
        await supervisor.approve(request.approval_id, by="ana")
        await handle.wait()

    assert (before, [call.id for call in adapter.ran]) == ([], ["c1"])


async def test_a_request_that_is_withdrawn_at_once_asks_nobody() -> None:
    """Nothing would take the question back, as its answer is not waited for."""
    approver, handles = FakeApprover(True), list[RunHandle]()

    def cancel(event: Event) -> None:
        if isinstance(event, ToolApprovalRequested):
            handles[0]._actor.cancel("enough")

    async with Supervisor(MemoryStore(), approver=approver, publishers=[cancel]) as supervisor:
        handles.append(await supervisor.start(FakeAdapter([Ask(id="c1", name="bash")]), "go", policies=asking()))
        await handles[0].wait_finished()

    assert approver.requests == []


async def test_one_approval_covers_the_run_if_the_policy_allows_it() -> None:
    """It covers later calls of the same tool under the same rule; neither another tool nor another key."""
    store = MemoryStore()
    steps = [
        Ask(id="c1", name="deploy", input={"to": "test"}),
        Ask(id="c2", name="deploy", input={"to": "test", "again": True}),
        Ask(id="c3", name="deploy", input={"to": "prod"}),
        Ask(id="c4", name="bash"),
    ]
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter(steps), "go", policies=asking(scope="run"), session_id="s")
        requests = []
        for scope in ("run", "once", "once"):
            request = await until_held(supervisor)
            requests.append(request.call.id)
            await supervisor.approve(request.approval_id, by="ana", scope=scope)
        result = await handle.wait()
    grants = [event for event in result.events if isinstance(event, ToolApprovalGranted)]

    assert requests == ["c1", "c3", "c4"]
    assert [(event.tool_call_id, event.by) for event in grants] == [(f"c{n}", "ana") for n in (1, 2, 3, 4)]
    assert grants[1].reason == f"covered by approval `{grants[0].approval_id}`"
    assert (grants[0].scope, grants[0].covers) == ("run", ("p/deploy=test",))
    assert (grants[1].covered_by, grants[1].asking) == (grants[0].approval_id, (("p", "deploy"),))
    assert [grant.covered_by for grant in (grants[0], *grants[2:])] == [None] * 3


@pytest.mark.parametrize("written", [
    {"rules": [{"type": "blocklist", "id": "ask", "tools": ["deploy"], "action": "request_approval"}]},
    {"nets": ["require human-approval before deploy"]},
], ids=["rule", "net"])  # fmt: skip
async def test_a_covered_call_asks_nobody_and_nothing_claims_it_did(written: dict[str, Any]) -> None:
    """Neither the event log, the store's list nor an approver. Replaying the log gives the same decisions."""
    policies = parse_policies({"name": "p", "on_violation": "deny", "approval": {"scope": "run"}, **written})
    store, shown = MemoryStore(), []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        shown.append(request.call.id)
        return ApprovalAnswer(granted=True, by="ana", scope="run")

    agent = FakeAdapter([Ask(id=f"c{n}", name="deploy") for n in (1, 2, 3)])
    result = await run_once(agent, "go", policies=policies, approver=approver, store=store)
    requests = [event.tool_call_id for event in result.events if isinstance(event, ToolApprovalRequested)]
    monitor = compile_policy(policies[0]).monitor()
    again = [found for event in result.events for found in monitor.observe(event)]

    assert [call.id for call in agent.ran] == ["c1", "c2", "c3"]
    assert (shown, requests) == (["c1"], ["c1"])
    assert [one.request.call.id for one in await store.approvals(waiting=False)] == ["c1"]
    assert again == []


async def test_an_approval_of_similar_calls_covers_no_others() -> None:
    """Those that an entry of an allow list admits, and that have no further input."""
    lines: list[str] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        lines.append(request.call.input["command"])
        entry = {"tool": "bash", "where": [{"path": "$.command", "runs": ["git push"]}]}
        return ApprovalAnswer(granted=len(lines) == 1, by="ana", scope="run", like=entry)

    inputs = [{"command": line} for line in ("git push", "git push -v", "git push; rm x", "rm x")]
    inputs.append({"command": "git push", "host": "prod"})
    agent = FakeAdapter([Ask(id=f"c{n}", name="bash", input=given) for n, given in enumerate(inputs)])
    await run_once(agent, "go", policies=asking(scope="run"), approver=approver)

    assert [call.id for call in agent.ran] == ["c0", "c1"]
    assert lines == ["git push", "git push; rm x", "rm x", "git push"]


@pytest.mark.parametrize(("scope", "approval", "user", "asks_again"), [
    ("session", {}, None, False),
    ("run", {}, None, True),
    ("session", {"scope": "once"}, None, True),
    ("run", {"scope": "once"}, None, True),
    ("session", {"approvers": ["ana"]}, None, False),
    ("session", {"approvers": ["bob"]}, None, True),
    ("session", {"approvers": ["@sre"]}, None, False),
    ("session", {"approvers": ["@dev"]}, None, True),
    ("session", {"four_eyes": True}, "bob", False),
    ("session", {"four_eyes": True}, "ana", True),
    ("session", {"four_eyes": True}, None, True),
], ids=str)  # fmt: skip
async def test_an_approval_for_the_session_covers_its_next_run_if_that_would_accept_it(
    scope: Any, approval: dict[str, Any], user: str | None, asks_again: bool
) -> None:
    """An approval for the run does not. The next run's policy may allow a smaller scope or other approvers, and the
    approver may have started that run.
    """

    async def granting(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", groups=("sre",), scope=scope)

    common: dict[str, Any] = {"store": (store := MemoryStore()), "session_id": "s"}
    first = FakeAdapter([Ask(id="c1", name="bash", input={"n": 1})])
    await run_once(first, "go", policies=asking(scope="session"), approver=granting, **common)
    adapter = FakeAdapter([Ask(id="c2", name="bash", input={"n": 2})])
    async with Supervisor(store) as supervisor:
        policies, context = asking(**{"scope": "session", **approval}), RunContext(user=user)
        handle = await supervisor.start(
            adapter, "go", policies=policies, context=context, session_id="s", continuation="none"
        )
        if asks_again:
            await until_held(supervisor)
            await handle.cancel()
        result = await handle.wait()
    granted = [event.by for event in result.events if isinstance(event, ToolApprovalGranted)]

    assert [call.id for call in adapter.ran] == ([] if asks_again else ["c2"])
    assert granted == ([] if asks_again else ["ana"])


def pushing(*rules: dict[str, Any], to: str = "^git push", **more: Any) -> list[Policy]:
    """A policy that asks about the calls that these rules name, and about some calls of `bash` as `push`."""
    virtual = [{"tool": "bash", "path": "$.command", "match": to, "as": "push"}]
    lists = [{"type": "blocklist", "action": "request_approval", **rule} for rule in rules]
    policy = {"name": "p", "approval": {"scope": "session"}, "rules": lists, "virtual_tools": virtual, **more}
    return parse_policies(policy)


PUSH = {"tools": ["push"]}
TESTS = {"tools": [{"tool": "bash", "where": [{"path": "$.command", "regex": "test"}]}]}
RULES_NOW: dict[str, tuple[list[Policy], bool]] = {
    "as it was": (pushing(PUSH), False),
    "another rule behind it": (pushing(PUSH, {"tools": ["read"]}), False),
    "a limit beside it": (pushing(PUSH, limits={"max_tool_calls": 9}), False),
    "another rule in its place": (pushing(TESTS), True),
    "another rule before it": (pushing(TESTS, {"tools": ["read"]}, PUSH), True),
    "another meaning of its name": (pushing(PUSH, to="^git"), True),
}


@pytest.mark.parametrize(("now", "asks_again"), RULES_NOW.values(), ids=RULES_NOW)
async def test_an_approval_for_the_session_does_not_cover_a_changed_rule(now: list[Policy], asks_again: bool) -> None:
    """Rules without an id are numbered by position, so a new rule at that position would have been approved."""

    async def granting(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", scope="session")

    store = MemoryStore()
    first, second = (
        FakeAdapter([Ask(id=id, name="bash", input={"command": f"git push {id} # test"})]) for id in ("c1", "c2")
    )
    await run_once(first, "go", policies=pushing(PUSH), approver=granting, store=store, session_id="s")
    nobody = FakeApprover(False)
    await run_once(second, "go", policies=now, approver=nobody, store=store, session_id="s", continuation="none")

    assert [call.id for call in first.ran] == ["c1"]
    assert [call.id for call in second.ran] == ([] if asks_again else ["c2"])


@pytest.mark.parametrize(("by", "runs"), [("ana", ["n1"]), ("eve", [])])
async def test_an_unused_approval_for_one_call_is_used_if_the_new_policy_accepts_it(by: str, runs: list[str]) -> None:
    """It was given to a run that had ended for it, under a policy that let anyone approve."""
    store = MemoryStore()
    adapter = FakeAdapter([Pause()])
    call = {"tool_name": "bash", "tool_call_id": "x", "tool_input": {"n": 1}, "policy_name": "p"}
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=parse_policies({"name": "p"}), session_id="s")
        request = await cancel_for_approval(store, handle, handle.run_id, call)
        await handle.wait()
        await supervisor.approve(request.approval_id, by=by)
    again = FakeAdapter([Ask(id="n1", name="bash", input={"n": 1})])
    policies = asking(approvers=["ana"])
    await run_once(again, "go", policies=policies, approver=FakeApprover(False), store=store, session_id="s")

    assert [ran.id for ran in again.ran] == runs


@pytest.mark.parametrize(("first", "second"), [
    ({"to": "test=prod"}, {"to": ["test", "prod"]}),
    ({"to": ["test", "prod"]}, {"to": "test=prod"}),
    ({"to": ["a=b", "c"]}, {"to": ["a", "b=c"]}),
    ({"to": '"a=b"'}, {"to": "a=b"}),
], ids=str)  # fmt: skip
async def test_an_approval_for_one_key_covers_no_other_key_with_the_same_text(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    """The agent chooses the keys, so an approval of a crafted one would have covered others."""
    shown = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        shown.append(request.call.id)
        return ApprovalAnswer(granted=True, by="ana", scope="run")

    agent = FakeAdapter(
        [Ask(id=f"c{n}", name="deploy", input=given) for n, given in enumerate((first, second, first))]
    )
    await run_once(agent, "go", policies=asking(scope="run"), approver=approver)

    assert shown == ["c0", "c1"]


@pytest.mark.parametrize("given", [{}, {"path": "notes"}], ids=str)
async def test_an_approval_for_an_unknown_key_covers_nothing_else(given: dict[str, Any]) -> None:
    """The next call may have any other key."""
    shown = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        shown.append(request.call.id)
        return ApprovalAnswer(granted=True, by="ana", scope="run")

    rule = {"type": "count", "tool": "write", "max": 0, "key": "$.path"}
    policy = {"name": "p", "on_violation": "request_approval", "approval": {"scope": "run"}, "rules": [rule]}
    tool = Tool(name="put", acts=("write",), inputs={"path": ("$.path",)}, takes=("path", "more"), unclear=("more",))
    asks = [Ask(id=f"c{n}", name="put", input={**given, "more": n}) for n in (1, 2)]
    agent = FakeAdapter(asks, capabilities=Capabilities(gate="all", tools=[tool]))
    await run_once(agent, "go", policies=parse_policies(policy), approver=approver)

    assert shown == ["c1", "c2"]


async def test_an_approval_for_a_key_too_long_to_display_covers_no_other_key() -> None:
    """Two keys with the same beginning need an approval each."""
    store = MemoryStore()
    long = "x" * 300
    steps = [Ask(id=f"c{n}", name="deploy", input={"to": f"{long}{n}"}) for n in range(2)]
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter(steps), "go", policies=asking(scope="run"))
        for _ in steps:
            await supervisor.approve((await until_held(supervisor)).approval_id, by="ana", scope="run")
        result = await handle.wait()
    requests = [event.tool_call_id for event in result.events if isinstance(event, ToolApprovalRequested)]

    assert requests == ["c0", "c1"]
    assert [e.covers for e in result.events if isinstance(e, ToolApprovalGranted)] == [(), ()]


def test_a_stack_accepts_an_answer_that_all_its_policies_accept() -> None:
    """Approvers are intersected, `four_eyes` applies if any policy has it, and the smallest scope counts."""
    org = asking(approvers=["ana", "@sre"], scope="run")[0]
    team = asking(approvers=["ana", "bob"], four_eyes=True, scope="session", timeout_s=10)[0]
    merged = merge_policies([org, team]).approval

    assert merged is not None
    assert (merged.approvers, merged.four_eyes, merged.scope, merged.timeout_s) == (("ana",), True, "run", 10)
