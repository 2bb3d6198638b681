"""The invariants of a simulation, whatever failed: checked as events are stored and calls run."""

from collections import Counter

import msgspec

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall

from .plans import SCOPES, Plan

LIE = "a lie"
"""The text of an agent's report that only a supervisor may make: it is never stored."""
PLACES = 2
"""The maximum of active runs, if a plan bounds it."""
A_WEEK = 4
"""The maximum of calls a week, if a plan bounds it."""
CALLS = 6
"""The maximum of calls of one run."""
CLOSING = 40
"""The most events that a run records for its end."""
AFTER_THE_END = (ev.ToolApprovalGranted, ev.ToolApprovalDenied, ev.ToolApprovalExpired)


def first_of(run_id: str) -> str:
    """The run of the plan to which a run belongs, as its retry or its child."""
    return run_id.partition(".")[0]


def is_by_an_agent(run_id: str) -> bool:
    """Whether an agent has started it, and not a person or a worker."""
    return "." in run_id and run_id.rpartition(".")[2][0].isalpha()


class Witness:
    """Sees every stored event and every call that is allowed and runs; `found` has the violated invariants.

    Args:
        plan: the bounds: how many calls of all runs together may be allowed, and how much is recorded.
    """

    def __init__(self, plan: Plan) -> None:
        self.found: list[str] = []
        self.events: list[ev.Event] = []
        self.ended: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.started: Counter[str] = Counter()
        self.reported: Counter[tuple[str, str]] = Counter()
        self.weeks: set[int] = set()
        """The starts of the weeks in which the store's clock was."""
        self._plan = plan
        self._going: set[str] = set()
        self._recorded: Counter[tuple[str, bool]] = Counter()
        self._permitted = 0
        self._in_flight: dict[tuple[str, str], str] = {}  # with the tool; every call has the same input
        self._may_run: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()
        self.pruned: set[str] = set()
        self.stopped: set[str] = set()
        """Runs that a command has ended, as its sender was told."""
        self._granted: Counter[tuple[str, str]] = Counter()
        self._grants: dict[str, ev.ToolApprovalGranted] = {}
        self._read_in: set[str] = set()
        self._calls: Counter[str] = Counter()
        self.here: set[str] = set()
        """Runs that agents start on their own supervisor."""
        self.acted: set[tuple[str, int]] = set()
        """For each run, the fallback members that have run a call, or that have reported anything and
        have no gate.
        """
        self._tokens: dict[tuple[str, int, bool], int] = {}
        self._owners = {} if plan.fleet else {start.run: start.owner for start in plan.starts}

    def claimed(self, run_id: str, epoch: int) -> None:
        """A run has another owner from now on."""
        self.epochs[run_id] = epoch

    def written(self, event: ev.Event, epoch: int) -> None:
        """The store accepts an event from the owner with that epoch."""
        if event.run_id and epoch and self.epochs.get(event.run_id, epoch) != epoch:
            self._says(f"`{event.type}` of run {event.run_id} was stored by an owner that it has no more")

    def stored(self, event: ev.Event) -> None:
        """An event is stored."""
        run_id = event.run_id
        self.events.append(event)
        if not run_id:
            return
        if run_id in self.ended and not isinstance(event, AFTER_THE_END):
            self._says(f"run {run_id} has `{event.type}` after its end, `{self.ended[run_id]}`")
        if LIE in map(str, msgspec.structs.astuple(event)):
            self._says(f"run {run_id} has stored `{event.type}` that its agent made up")
        if isinstance(event, ev.TERMINAL):
            self.ended.setdefault(run_id, event.type)
            self.settled(run_id)
        self._count(run_id, event)
        self._bound(run_id, event)

    def _bound(self, run_id: str, event: ev.Event) -> None:
        is_message = isinstance(event, ev.MessageReceived)
        most = self._plan.record.get("max_messages" if is_message else "max_events")
        self._recorded[run_id, is_message] += 1
        if most is not None and self._recorded[run_id, is_message] > most + (0 if is_message else CLOSING):
            self._says(
                f"run {run_id} has stored {self._recorded[run_id, is_message]} events, and {most} are its most"
            )

    def opened(self, run_id: str, member: int = 0) -> None:
        """A run's agent is started, so the run has a slot."""
        if run_id not in self.ended:  # else its suspended owner has yet to learn of the end, and cancels it then
            self._going.add(run_id)
        if earlier := [other for run, other in self.acted if run == run_id and other != member]:
            self._says(f"member {member} of run {run_id} is started, and member {earlier[0]} had acted")
        self._place(run_id)
        # agents of a suspended owner continue until it reads the command, and child runs here have their own slots
        unheard = bool(self._plan.stops) and (is_by_an_agent(run_id) or bool(self._plan.members))
        unheard = unheard or any(run_id == run or run_id.startswith(f"{run}.") for run in self.here)
        if first_of(run_id) in self.stopped and not unheard:
            self._says(f"the agent of run {run_id} is started, and an order had ended {first_of(run_id)}")
        if "places" in self._plan.budgets and len(self._going) > PLACES:
            self._says(f"{len(self._going)} runs go on at once: {sorted(self._going)}")

    def _place(self, run_id: str) -> None:
        """No more runs are active than their supervisor has slots. A run lends its slot to a run that it starts."""
        owner = self._owners.get(first_of(run_id))
        here = {run for run in self._going if run in self.here or run in self._owners}
        here = {run for run in here if self._owners[first_of(run)] == owner}
        lent = set()
        for run in here:
            while run := run.rpartition(".")[0]:
                if run in here:
                    lent.add(run)
                    break
        if len(here - lent) > self._plan.max_running:
            self._says(f"{sorted(here - lent)} go on at once, and {self._plan.max_running} are the most")

    def takes(self, run_id: str, member: int, event: ev.Event, *, taken: bool, asks: bool) -> None:
        """An event of a fallback member is about to be `taken`, or was."""
        if taken and not asks:
            self.acted.add((run_id, member))
        if isinstance(event, ev.TokenUsageUpdated):
            whose, before = (run_id, member, taken), self._tokens.get((run_id, member, taken), 0)
            now = event.input_tokens
            self._tokens[whose] = before + now if event.scope == "delta" else max(before, now)

    def check_usage(self, run_id: str, tokens: int, *, completed: bool) -> None:
        """The usage of a run is what all its members reported."""
        least, most = (
            sum(count for (run, _, taken), count in self._tokens.items() if run == run_id and taken == kind)
            for kind in (True, False)
        )
        if tokens > most or (completed and tokens < least):
            self._says(f"run {run_id} has used {tokens} tokens, and its agents told of {least} to {most}")

    def settled(self, run_id: str) -> None:
        """A run uses no budget any more."""
        self._going.discard(run_id)

    def _count(self, run_id: str, event: ev.Event) -> None:
        if isinstance(event, ev.MessageReceived | ev.TokenUsageUpdated):
            what = (run_id, event.content if isinstance(event, ev.MessageReceived) else event.type)
            self._kept[what] += 1
            if self._kept[what] > self.reported[what]:
                self._says(f"run {run_id} has stored `{event.type}` more often than its agent reported it: {what[1]}")
        if isinstance(event, ev.ToolCallStarted):
            self.started[run_id] += 1
            if self._in_flight.get((run_id, event.tool_call_id)) == event.tool_name:
                self._says(f"call {event.tool_call_id} of run {run_id} was started twice")
            self._in_flight[run_id, event.tool_call_id] = event.tool_name
        elif isinstance(event, ev.ToolCallCompleted | ev.ToolCallFailed | ev.ToolCallDenied):
            self._in_flight.pop((run_id, event.tool_call_id), None)
            if isinstance(event, ev.ToolCallCompleted) and event.tool_name == "read":
                self._read_in.add(event.session_id)
        elif isinstance(event, ev.ToolApprovalGranted):
            self._granted[run_id, event.tool_call_id] += 1
            self._check_grant(event)

    @property
    def unasked(self) -> int:
        """The number of their agents' ungated calls, which no budget limits."""
        return sum(self.started.values()) - self._permitted

    def permitted(self, run_id: str, call: ToolCall) -> None:
        """The gate has allowed a call: it must be recorded, and within the budget."""
        self._permitted += 1
        self._may_run[run_id, call.id] += 1
        if (run_id, call.id) not in self._in_flight:
            self._says(f"call {call.id} of run {run_id} was permitted before that was recorded")
        self._judge(run_id, call)
        most = self._plan.budget
        if "week" in self._plan.budgets:
            most = min(most, A_WEEK * len(self.weeks))
        if self._permitted > most:
            self._says(f"{self._permitted} calls were permitted, and the budget is {most}")

    def _check_grant(self, event: ev.ToolApprovalGranted) -> None:
        """It comes from a person who may approve, or is covered by one with a sufficient scope."""
        whose = f"run {event.run_id} has stored that {event.by} approved call {event.tool_call_id}"
        allowed = self._plan.approval.get("approvers", ("ana", "ben", "eva"))
        most = self._plan.approval.get("scope", SCOPES[0])
        if event.by not in allowed or SCOPES.index(event.scope) > SCOPES.index(most):
            self._says(f"{whose}, for the {event.scope}: that is not theirs to say")
        if event.covered_by is None:
            self._grants[event.approval_id] = event
            return
        earlier = self._grants.get(event.covered_by)
        if earlier is None or earlier.session_id != event.session_id:
            self._says(f"{whose}, by an approval that there was not")
        elif (earlier.scope == "once" and earlier.run_id not in self.ended) or (
            earlier.scope == "run" and earlier.run_id != event.run_id
        ):
            self._says(f"{whose}, by an approval that did not reach so far")
        elif earlier.scope == "once":
            del self._grants[event.covered_by]

    def removed(self, session_id: str) -> None:
        """A session was pruned."""
        if going := {event.run_id for event in self.events if event.session_id == session_id} & self._going:
            self._says(f"session {session_id} was removed while {sorted(going)} went on")
        self.pruned.add(session_id)
        self._read_in.discard(session_id)
        self._grants = {id: grant for id, grant in self._grants.items() if grant.session_id != session_id}

    def _judge(self, run_id: str, call: ToolCall) -> None:
        """A second implementation of the policy of all runs, on the stored events."""
        self._calls[run_id] += 1
        session_id = next(event.session_id for event in reversed(self.events) if event.run_id == run_id)
        if self._calls[run_id] > CALLS:
            self._says(f"run {run_id} was permitted {self._calls[run_id]} calls, and {CALLS} are its most")
        if call.name == "rm":
            self._says(f"call {call.id} of run {run_id} was permitted: nothing may remove")
        if call.name == "deploy" and session_id not in self._read_in:
            self._says(f"call {call.id} of run {run_id} deploys, and nothing was read in its session")
        if call.name == "write":
            self._granted[run_id, call.id] -= 1
            if self._granted[run_id, call.id] < 0:
                self._says(f"call {call.id} of run {run_id} writes, and nobody approved that")

    def runs(self, run_id: str, call_id: str) -> None:
        """A gated call runs."""
        self._may_run[run_id, call_id] -= 1
        if self._may_run[run_id, call_id] < 0:
            self._says(f"call {call_id} of run {run_id} ran once more than it was permitted")

    def _says(self, text: str) -> None:
        self.found.append(text)
