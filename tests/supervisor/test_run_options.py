"""What one run takes, by whichever function it is started: the same options, the same checks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.policies.policy import Policy
from proctor.supervisor import (
    MemoryStore,
    RunOptions,
    Supervisor,
    UsageError,
    create_run,
    execute_run,
    run_once,
    run_once_sync,
)
from proctor.supervisor.testing import FakeAdapter

pytestmark = pytest.mark.anyio
Starter = Callable[..., Awaitable[Any]]


async def once(**options: Any) -> Any:
    return await run_once(FakeAdapter([]), "go", **options)


async def blocking(**options: Any) -> Any:
    return run_once_sync(FakeAdapter([]), "go", **options)


async def recorded(**options: Any) -> Any:
    store = MemoryStore()
    return await execute_run(store, FakeAdapter([]), await create_run(store, "go"), **options)


async def started(**options: Any) -> Any:
    async with Supervisor(MemoryStore()) as supervisor:
        return await supervisor.start(FakeAdapter([]), "go", **options)


async def executed(**options: Any) -> Any:
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        return await supervisor.execute(FakeAdapter([]), await create_run(store, "go"), **options)


EACH = pytest.mark.parametrize("start", [once, blocking, recorded, started, executed])


@EACH
async def test_an_option_that_there_is_not_is_rejected_with_the_nearest(start: Starter, permissive: Policy) -> None:
    with pytest.raises(UsageError, match=r"takes no `polices`; did you mean `policies`\?"):
        await start(polices=[permissive])


@EACH
async def test_one_that_is_near_to_none_is_rejected_with_all(start: Starter, permissive: Policy) -> None:
    with pytest.raises(UsageError, match=r"takes no `zzz`; it takes policies, policy, context, continuation, "):
        await start(policy=permissive, zzz=1)


@EACH
async def test_two_ways_to_give_policies_are_one_too_many(start: Starter, permissive: Policy) -> None:
    with pytest.raises(UsageError, match="both `policies` and `policy` were given"):
        await start(policy=permissive, policies=[permissive])


@EACH
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"context": {"user": "a"}}, "`context` is a value of type `dict`, not a `RunContext`"),
        ({"validators": [print]}, "`validators` is not a mapping from the names of nets to functions"),
        ({"continuation": "sometimes"}, "sometimes"),
    ],
)
async def test_each_is_checked(start: Starter, permissive: Policy, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await start(policy=permissive, **wrong)


async def test_what_a_created_run_has_is_not_given_again(permissive: Policy) -> None:
    """Its ids and metadata are in the store."""
    with pytest.raises(UsageError, match="`execute_run` takes no `session_id`"):
        await recorded(policy=permissive, session_id="other")


@EACH
async def test_each_works(start: Starter, permissive: Policy) -> None:
    every = dict.fromkeys(RunOptions.__annotations__, None) | {"policy": permissive, "continuation": "none"}
    await start(**every)


def test_the_five_take_them_as_they_are_typed() -> None:
    for function in (run_once, run_once_sync, execute_run, Supervisor.start, Supervisor.execute):
        assert "Options]" in str(inspect.signature(function).parameters["options"].annotation)
