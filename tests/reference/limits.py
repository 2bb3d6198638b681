"""Limits: their usage, whether they are exceeded, and whether they deny a call."""

from collections.abc import Mapping
from typing import Any

from .moments import Moment, active, idle, runs
from .tokens import spent

ORDER = [
    *("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_cost_usd", "max_duration_ms", "max_idle_ms"),
    *("max_tool_calls", "max_turns"),
]
CLOCKS = ("max_duration_ms", "max_idle_ms")


class Limited:
    """The limits of a policy, over sessions with cumulative or incremental reports; without state.

    `reject`: usage without a price exceeds a cost limit.
    """

    def __init__(self, limits: Mapping[str, Any], *, cumulative: bool, reject: bool) -> None:
        self.limits = {name: limits[name] for name in ORDER if name in limits}
        self.cumulative = cumulative
        self.reject = reject

    def used(self, name: str, past: list[Moment]) -> float:
        """The usage of a limit, in this run or in the whole session."""
        lived, session = runs(past), self.limits[name].get("scope") == "session"
        counted = lived if session else lived[-1:]
        if name == "max_tool_calls":
            return sum(moment.what == "started" for run in counted for moment in run)
        if name == "max_turns":
            return sum(max(moment.turn for moment in run) for run in counted)
        if name == "max_duration_ms":
            earlier = sum(active(run)[-1] - run[0].at for run in counted[:-1])
            return earlier + past[-1].at - lived[-1][0].at
        if name == "max_idle_ms":
            return idle(lived[-1])
        each = spent(past, self.cumulative)
        of = each if session else each[-1:]
        input, output, usd = (sum(run[n] for run in of) for n in range(3))
        return {"max_input_tokens": input, "max_output_tokens": output, "max_cost_usd": usd}.get(name, input + output)

    def exceeded(self, past: list[Moment]) -> list[str]:
        """The limits that are exceeded."""
        found = [name for name, limit in self.limits.items() if self.used(name, past) > limit["max"]]
        if self.reject and "max_cost_usd" in self.limits and spent(past, self.cumulative)[-1].unpriced:
            found.append("max_cost_usd")
        return list(dict.fromkeys(found))

    def reports(self, past: list[Moment]) -> list[str]:
        """The limits that are exceeded now and were not reported before in this run."""
        reported = {name for moment in runs(past)[-1] for name in moment.reported}
        return [name for name in self.exceeded(past) if name not in reported]

    def warnings(self, past: list[Moment]) -> list[str]:
        """The limits that have reached their `warn_at` and have not warned before in their scope."""
        this_run = runs(past)[-1]
        of = {name: past if limit.get("scope") == "session" else this_run for name, limit in self.limits.items()}
        warned = {name for name, moments in of.items() if any(name in moment.warned for moment in moments)}
        near = {name: round(x["max"] * x["warn_at"], 9) for name, x in self.limits.items() if "warn_at" in x}
        return [name for name, least in near.items() if name not in warned and self.used(name, past) >= least]

    def refusals(self, past: list[Moment], turn: int) -> list[tuple[str, str]]:
        """The limits that deny a call: exceeded, or exceeded by it; with `warn` only the one report."""
        reported = {name for moment in runs(past)[-1] for name in moment.reported}
        after = [*past, Moment("started", past[-1].at, turn=turn)]
        found = [(name, self.limits[name]["action"]) for name in self.exceeded(after)]
        return [(name, action) for name, action in found if action != "warn" or name not in reported]

    def rings(self, past: list[Moment], at: int) -> bool:
        """Whether a clock is exceeded if nothing happens until then."""
        return any(name in CLOCKS for name in self.reports([*past, Moment("tick", at)]))
