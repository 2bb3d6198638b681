"""Who may answer, and how much one yes covers: as the policy says, at every surface."""

from typing import Any

import anyio
import pytest
from answering import kind, until_held

from proctor.policies import Policy, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies.events import ToolApprovalGranted, ToolApprovalRequested
from proctor.supervisor import MemoryStore, Supervisor, cancel_for_approval, pending, run_once
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, FakeApprover, Pause

pytestmark = pytest.mark.anyio


def asking(**approval: Any) -> list[Policy]:
    """A policy under which `bash` and `deploy` need a person, `deploy` for each place by itself."""
    rules = [
        {"type": "blocklist", "id": "bash", "tools": ["bash"]},
        {"type": "count", "id": "deploy", "tool": "deploy", "max": 0, "key": "$.to"},
    ]
    return parse_policies({"name": "p", "on_violation": "request_approval", "approval": approval, "rules": rules})


ANYONE_OF = {"approvers": ["ana", "@sre"]}


@pytest.mark.parametrize(("approval", "user", "refused", "counts"), [
    (ANYONE_OF, None,
        [{"by": "eve"}, {"by": "eve", "granted": False}, {"by": "sre"}, {"by": "eve", "groups": ("dev",)}],
        {"by": "bob", "groups": ("dev", "sre")}),
    (ANYONE_OF, None, [], {"by": "ana"}),
    ({"four_eyes": True}, "ana", [{"by": "ana"}], {"by": "bob"}),
    ({"four_eyes": True}, None, [{"by": "ana"}, {"by": "bob"}], None),
    ({}, None, [{"scope": "session"}, {"scope": "run"}], {"scope": "once"}),
], ids=["a group", "a name", "who started it", "nobody knows who started it", "more than is allowed"])  # fmt: skip
async def test_an_answer_counts_if_the_policy_lets_its_giver_give_it(
    approval: dict[str, Any], user: str | None, refused: list[dict[str, Any]], counts: dict[str, Any] | None
) -> None:
    """By name, or by a group that the surface says they are of, a yes and a no alike; under four eyes not by who
    started the run, and by nobody where that is not known. A yes that would cover more than the policy allows does
    not count: the default is the one call.
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


async def test_an_approver_in_the_process_is_held_to_it_too() -> None:
    """What it answers does not count, and the call goes on waiting for somebody who may."""
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


async def test_one_yes_covers_the_run_where_the_policy_allows_it() -> None:
    """Later calls of that tool that the same rule asks about; not another tool, nor another key."""
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
async def test_a_covered_call_asks_nobody_and_nothing_says_it_did(written: dict[str, Any]) -> None:
    """Not the record, not the store's list, not an approver; read again, the record is as it was judged."""
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
async def test_a_yes_for_the_session_holds_in_its_next_run_if_it_would_count_there(
    scope: Any, approval: dict[str, Any], user: str | None, asks_again: bool
) -> None:
    """One for the run does not. The next run's policy may allow less, or want others to answer, and it may be started
    by whoever gave it.
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
async def test_a_yes_for_the_session_covers_nothing_of_a_rule_that_was_changed(
    now: list[Policy], asks_again: bool
) -> None:
    """Rules without an id go by their place: whatever is written there later would have been approved."""

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
async def test_a_yes_for_one_call_that_has_not_run_is_used_if_it_would_count_now(by: str, runs: list[str]) -> None:
    """It was given to a run that ended in order to ask, under a policy that let anyone answer."""
    store = MemoryStore()
    adapter = FakeAdapter([Pause()])
    call = {"tool_name": "bash", "tool_call_id": "x", "tool_input": {"n": 1}, "policy_name": "p"}
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=parse_policies({"name": "p"}), session_id="s")
        with anyio.fail_after(PATIENCE_S):
            request = await cancel_for_approval(store, handle, handle.run_id, call)
            await handle.wait()
        await supervisor.approve(request.approval_id, by=by)
    again = FakeAdapter([Ask(id="n1", name="bash", input={"n": 1})])
    policies = asking(approvers=["ana"])
    await run_once(again, "go", policies=policies, approver=FakeApprover(False), store=store, session_id="s")

    assert [ran.id for ran in again.ran] == runs


async def test_a_key_too_long_to_be_shown_whole_covers_nothing_else() -> None:
    """Two that begin alike are not one: each is asked for."""
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


def test_a_stack_allows_what_all_of_it_allow() -> None:
    """Approvers intersect, four eyes hold if anybody says so, and the narrowest scope counts."""
    org = asking(approvers=["ana", "@sre"], scope="run")[0]
    team = asking(approvers=["ana", "bob"], four_eyes=True, scope="session", timeout_s=10)[0]
    merged = merge_policies([org, team]).approval

    assert merged is not None
    assert (merged.approvers, merged.four_eyes, merged.scope, merged.timeout_s) == (("ana",), True, "run", 10)
