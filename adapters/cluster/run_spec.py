"""A run as data, so that any worker can execute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.policies.policy import Policy
from proctor.policies.rules.evidence.check import Check
from proctor.policies.stream.calls import RunContext
from proctor.supervisor.errors import UsageError
from proctor.supervisor.launch.history import Continuation
from proctor.supervisor.launch.plan import policies_given, written

GO_ON = "You were interrupted. Go on with the task from where you stopped."


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run as data: what any worker needs to execute it. `RunSpec.of` makes one.

    Attributes:
        adapter: The agent, by the name the command line knows it by.
        prompt: What it is to do.
        options: The adapter's own options. They are stored: no secret belongs here; a worker's environment has those.
        policies: The policies as JSON has them, merged left to right.
        context: Who runs what.
        continuation: How its session goes on: `auto`, `native`, `replay`, `none`; see `run_once`.
        metadata: Anything to record with the run.
        take_overs: How often another run goes on with it where its worker died; then it stays failed. None does of an
            agent that cannot be told to go on (`shell`, `replay`), or without `continuation`.
        go_on: What the agent is told then, where it had begun.
    """

    adapter: str
    prompt: str
    options: dict[str, Any] = {}
    policies: tuple[dict[str, Any], ...] = ()
    context: RunContext | None = None
    continuation: Continuation = "auto"
    metadata: dict[str, Any] = {}
    take_overs: int = 3
    go_on: str = GO_ON

    @staticmethod
    def of(adapter: str, prompt: str, *, policies: Sequence[Policy], **more: Any) -> RunSpec:
        """The spec of a run under these policies; `more` are its other fields.

        Args:
            adapter: the agent, by name.
            prompt: the agent's task.
            policies: the policies, merged left to right; `()` for a run under no policy.
            more: other fields of the spec.

        Raises:
            UsageError: there is no policy, a policy holds a check in Python, which is no data, or a field makes no
                sense.
            PolicyError: `policies` is not a list of policies.
        """
        given = policies_given(policies if policies != [] else None, None)
        for policy in given:
            for rule in policy.rules:
                if isinstance(rule, Check):
                    raise UsageError(f"policy `{policy.name}` has a check in Python, which no other process can run")
        try:
            plain = {"adapter": adapter, "prompt": prompt, "policies": written(given), **more}
            return msgspec.convert(msgspec.to_builtins(plain), RunSpec)
        except (msgspec.ValidationError, TypeError) as error:
            raise UsageError(f"this is not a run that workers can execute: {error}") from None
