"""Secrets in every field of every event: none reaches the store's file, a subscriber, an approver or a log."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from supervised import Before

from proctor.adapters.stores import SQLiteStore
from proctor.policies import Allow, Limits, Policy, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.supervisor import MemoryStore, Redaction, Supervisor, cancel_for_approval, create_run, run_once
from proctor.supervisor.control.approval_inbox import answer, pending
from proctor.supervisor.errors import PolicyViolationError, ProviderError, StoreError
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest
from proctor.supervisor.redaction import EXACT
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, Pause

from .secrets import HEARTS, SECRETS

pytestmark = pytest.mark.anyio
POLICY = Policy(name="open", limits=Limits(max_tool_calls=1000), tool_rules=(Allow(("*",)),))
ASKING = parse_policies(
    "name: asking\napproval: {timeout_s: 60}\n"
    "tool_rules: [{deny: [deploy], action: request_approval, reason: '" + SECRETS["aws-key"] + "'}]"
)
ALL = " and ".join(SECRETS.values())


def secrets_in(data: bytes | str) -> list[str]:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return [name for name, heart in HEARTS.items() if heart in text]


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def planted(kind: type[ev.Event]) -> ev.Event:
    """An event of this type, with all secrets in each field of text or any value."""
    filled: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in ev.Event.__struct_fields__ or field.name in EXACT:
            filled |= {field.name: "id"} if field.required else {}
            continue
        for value in ({"deep": [ALL, {ALL: 1}]}, ALL, [ALL], ({"deep": ALL},)):
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                continue
            filled[field.name] = value
            break
    return kind(**filled)


STEPS = [planted(kind) for kind in ev.EVENT_TYPES.values() if kind not in ev.TERMINAL]


async def test_no_secret_in_an_event_reaches_the_store_or_a_subscriber(tmp_path: Path) -> None:
    """Every byte of the file is searched, and so is the log."""
    seen: list[ev.Event] = []
    steps = [*STEPS, ev.Unrecognized(raw={"type": "new_kind", "said": ALL})]
    async with SQLiteStore(tmp_path / "s.db") as store:
        result = await run_once(
            FakeAdapter(steps, output={"said": ALL}),
            ALL,
            policies=[POLICY],
            store=store,
            publishers=[lambda event: seen.append(event)],
            metadata={"note": ALL},
            context=RunContext(labels={"token": ALL}),
            session_id="s",
        )
        stored = [event async for event in store.read("s")]
        runs = await store.runs()
        assert secrets_in(bytes_of(tmp_path)) == []
    assert secrets_in(bytes_of(tmp_path)) == []
    assert secrets_in(repr([stored, seen, runs, result.events, result.calls])) == []
    assert len(stored) > len(STEPS)
    assert result.output == {"said": ALL}  # the caller's result has what the agent returned


async def test_a_secret_is_found_in_a_message_and_in_one_delta_but_not_across_two() -> None:
    """As documented: each delta of streamed text is searched alone."""
    whole, split = SECRETS["github-token"], SECRETS["aws-key"]
    steps = [
        ev.MessageStreamed(delta=f"it is {whole} "),
        ev.MessageStreamed(delta=split[:9]),
        ev.MessageStreamed(delta=split[9:]),
        ev.MessageReceived(content=f"it is {whole} {split}"),
    ]
    result = await run_once(FakeAdapter(steps), "go", policies=[POLICY])
    pieces = [event.delta for event in result.events if isinstance(event, ev.MessageStreamed)]
    messages = [event for event in result.events if isinstance(event, ev.MessageReceived)]
    assert secrets_in(repr(messages)) == []
    assert secrets_in(pieces[0]) == []
    assert "".join(pieces[1:]) == split


async def test_errors_of_the_agent_and_of_a_policy_have_no_secret() -> None:
    """An exception of the agent, and the values in a violation."""
    store = MemoryStore()
    with pytest.raises(ProviderError):
        await run_once(
            FakeAdapter([Crash(ProviderError(ALL, details={"body": ALL}))]), "go", policies=[POLICY], store=store
        )
    forbids = parse_policies("name: p\nrules: [{type: loop, window: 3, threshold: 2, action: cancel}]")
    again = [Ask(name="bash", input={"command": ALL})] * 3
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter(again), "go", policies=forbids, store=store)
    for run in await store.runs():
        assert secrets_in(repr([event async for event in store.read(run.session_id)])) == []


async def test_an_approval_request_is_redacted_and_bound_to_the_exact_input() -> None:
    """In this process and in the store. The call that runs is the proposed one."""
    shown: list[ApprovalRequest] = []
    exact = {"command": ALL, SECRETS["jwt"]: [ALL]}

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        shown.extend([request, *await pending(store), *supervisor.approvals()])
        return ApprovalAnswer(granted=True, by="ana", reason=ALL, input_digest=request.input_digest)

    store = MemoryStore()
    adapter = FakeAdapter([Ask(name="deploy", input=exact)])
    async with Supervisor(store, approver=approver) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=ASKING)
        await handle.wait_finished()
    result = await handle.wait()
    assert len(shown) == 3
    assert secrets_in(repr(shown)) == []
    assert {request.input_digest for request in shown} == {input_digest(exact)}
    assert [call.input for call in adapter.ran] == [exact]
    assert secrets_in(repr(result.events)) == []
    requests = [event for event in result.events if isinstance(event, ev.ToolApprovalRequested)]
    assert [event.input_digest for event in requests] == [input_digest(exact)]


async def test_answers_and_requests_through_the_store_are_redacted(tmp_path: Path) -> None:
    """A person's text, and the call that a run is ended for."""
    async with SQLiteStore(tmp_path / "s.db") as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=ASKING)
        about = {"tool_name": "deploy", "tool_call_id": "c", "tool_input": {"to": ALL}}
        wanted = await cancel_for_approval(store, FakeAdapter(), handle.run_id, about)
        assert wanted.input_digest == input_digest({"to": ALL})
        await answer(store, wanted.approval_id, ApprovalAnswer(granted=True, by="ana", reason=ALL))
        waits = FakeAdapter([Ask(name="deploy", input={"to": "other"})])
        handle = await supervisor.start(waits, "go", policies=ASKING, session_id="t")
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            request = await first(events, ev.ToolApprovalRequested)
        await answer(store, request.approval_id, ApprovalAnswer(granted=False, by="ana", reason=ALL, tell_model=ALL))
        await handle.wait_finished()
        assert secrets_in(bytes_of(tmp_path)) == []


@pytest.mark.parametrize("whose", ["this supervisor", "another process"])
async def test_an_answer_is_redacted_for_the_model_whoever_records_it(whose: str) -> None:
    """Its text for the model may end up in a log of the agent's own."""
    store, adapter = MemoryStore(), FakeAdapter([Ask(name="deploy", id="c1")])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=ASKING)
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            request = await first(events, ev.ToolApprovalRequested)
        if whose == "this supervisor":
            await supervisor.deny(request.approval_id, by="ana", tell=ALL)
        else:
            declined = ApprovalAnswer(granted=False, by="ana", tell_model=ALL)
            await answer(store, request.approval_id, declined)
        await handle.wait()

    tell = adapter.answers["c1"].tell_model
    assert tell is not None
    assert secrets_in(tell) == []


async def first(events: AsyncIterator[ev.Event], kind: type[Any]) -> Any:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came")


async def test_an_approval_for_a_redacted_input_is_used_in_the_next_run() -> None:
    """The log has the digest of the exact input: the same call is allowed, another is not."""
    store = MemoryStore()
    exact = {"to": SECRETS["github-token"]}
    other = {"to": "ghp" + "_" + "q2" * 18}
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=ASKING, session_id="s")
        about = {"tool_name": "deploy", "tool_call_id": "c", "tool_input": exact}
        wanted = await cancel_for_approval(store, handle, handle.run_id, about)
        await supervisor.approve(wanted.approval_id, by="ana")
    later = FakeAdapter([Ask(name="deploy", input=exact), Ask(name="deploy", input=other)])
    async with Supervisor(store, answerable=False) as supervisor:
        handle = await supervisor.start(later, "go", policies=ASKING, session_id="s", continuation="none")
        await handle.wait_finished()
    assert [call.input for call in later.ran] == [exact]


async def test_logs_have_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the reason of a run's end nor in a traceback."""
    caplog.set_level(logging.DEBUG, "proctor")

    def fails(event: ev.Event) -> None:
        raise RuntimeError(ALL)

    async with Supervisor(MemoryStore(), publishers=[fails]) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[POLICY])
        await handle.cancel(reason=ALL)
        await handle.wait_finished()
    assert "publisher.dropped" in caplog.text
    assert "run.finished" in caplog.text
    assert secrets_in(caplog.text) == []


@pytest.mark.parametrize("rule", ["count", "loop", "precondition"])
async def test_policies_evaluate_the_exact_input(rule: str) -> None:
    """A rule that reads or compares the secret decides as without redaction, live and from the log."""
    token = SECRETS["github-token"]
    reads = f"{{tool: bash, where: [{{path: $.token, contains: {token[:12]}}}]}}"
    texts = {
        "count": f"{{type: count, tool: {reads}, max: 1}}",
        "loop": "{type: loop, window: 5, threshold: 2}",
        "precondition": "{type: precondition, tool: bash, requires: [{prior: read, same: [{path: $.token}]}]}",
    }
    policies = parse_policies("name: p\non_violation: deny\nrules: [" + texts[rule] + "]")
    asks = [
        Ask(name="read", input={"token": token}),
        Ask(name="bash", input={"token": token}),
        Ask(name="bash", input={"token": token}),
    ]
    plain, redacted = FakeAdapter(asks), FakeAdapter(asks)
    await run_once(plain, "go", policies=policies, redaction=Redaction(off=True))
    store = MemoryStore()
    result = await run_once(redacted, "go", policies=policies, store=store, redaction=Redaction())
    assert [call.id for call in redacted.ran] == [call.id for call in plain.ran]
    if rule != "count":  # the log has no answer to what a rule read in a secret; equal secrets stay equal
        folded = compile_policy(merge_policies(policies)).monitor()
        async for event in store.read(result.session_id):
            folded.observe(event)
        again = next(
            event for event in result.events if isinstance(event, ev.ToolCallStarted) and event.tool_name == "bash"
        )
        proposed = ToolCall(id="next", name="bash", input=again.tool_input)
        exact = await run_once(FakeAdapter([*asks, asks[1]]), "go", policies=policies, redaction=Redaction(off=True))
        live_allows = sum(isinstance(event, ev.ToolCallStarted) for event in exact.events) > len(plain.ran)
        assert (folded.propose(proposed).action == "allow") == live_allows


async def test_a_created_run_passes_the_exact_prompt_to_its_agent(tmp_path: Path) -> None:
    """The prompt is kept until the run starts."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        run_id = await create_run(store, f"use {ALL}")
        adapter = FakeAdapter()
        async with Supervisor(store) as supervisor:
            await (await supervisor.execute(adapter, run_id, policies=[POLICY])).wait_finished()
        assert adapter.launches[0].prompt == f"use {ALL}"


async def test_redaction_can_be_turned_off() -> None:
    store = MemoryStore()
    await run_once(FakeAdapter(), ALL, policies=[POLICY], store=store, session_id="s", redaction=Redaction(off=True))
    assert len(secrets_in("".join([repr(event) async for event in store.read("s")]).replace("\\n", "\n"))) == len(
        HEARTS
    )


async def test_a_store_that_rejects_a_redacted_terminal_event_is_given_another() -> None:
    """The terminal event is identified by its content, since redaction made a copy of it."""
    store = Before(ev.RunCompleted, StoreError("no", kind="bad_record"))
    with anyio.fail_after(20), pytest.raises(Exception, match="no"):
        await run_once(FakeAdapter(output=ALL), "go", policies=[POLICY], store=store, session_id="s")
    ends = [event async for event in store.read("s") if isinstance(event, ev.TERMINAL)]
    assert [type(event) for event in ends] == [ev.RunFailed]
