"""What analyses answer: the findings of preflight, and the answers to questions about whole sessions."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from ..errors import PolicyViolationError, Violation
from ..events import Event
from ..events.calls import rule_name
from ..stack.clauses import Clause

Severity: TypeAlias = Literal["refuse", "report"]


class CodeMeaning(NamedTuple):
    """The meaning of a code, and its consequence unless a finding says otherwise."""

    severity: Severity
    words: str


CODES = {
    "budget_effect": CodeMeaning("report", "what comes of a shared budget that is used up, on this adapter"),
    "cannot_gate": CodeMeaning("refuse", "`enforcement: required`, and the adapter does not hold every call"),
    "contradictory_conditions": CodeMeaning(
        "report", "conditions that no call meets together: the rule never applies"
    ),
    "context_missing": CodeMeaning("refuse", "the run's context leaves out a field that a `when` asks for"),
    "dead_transition": CodeMeaning("refuse", "a transition of a net can never fire"),
    "denied_allow_entry": CodeMeaning("refuse", "the same or an earlier policy denies all that an allow entry names"),
    "disjoint_allow_lists": CodeMeaning("refuse", "no tool is in every allow list"),
    "empty_allow_list": CodeMeaning("refuse", "an allow list without an entry"),
    "evaded_by_one_call": CodeMeaning("report", "one other call in between evades the rule"),
    "foreign_name": CodeMeaning("report", "a name that only another policy of the stack gives a tool"),
    "gave_up": CodeMeaning("report", "there is too much to look at to tell"),
    "not_finished": CodeMeaning("report", "checks that took too long and were left unfinished"),
    "idle_net": CodeMeaning("report", "a net of one line that holds nothing back"),
    "links_not_followed": CodeMeaning(
        "report", "`within` reads paths as text, and a link may lead out of a directory"
    ),
    "limit_effect": CodeMeaning("report", "what a limit will do on this adapter"),
    "loosened": CodeMeaning("report", "something that would weaken a locked policy, and has no effect"),
    "loosened_limit": CodeMeaning("report", "a limit that would weaken a locked one, and has no effect"),
    "matches_nothing": CodeMeaning("report", "a regular expression that no text matches"),
    "never_callable": CodeMeaning("refuse", "no clause denies the tool, and together they never allow it"),
    "never_satisfied": CodeMeaning(
        "refuse", "something must be called that never can be, or not so often, or not all in one run"
    ),
    "nothing_left": CodeMeaning("refuse", "all that is allowed is denied"),
    "odd_name": CodeMeaning("report", "a name that looks meant for another program, and matches no tool"),
    "only_observed": CodeMeaning("report", "rules that the adapter cannot keep a call from breaking"),
    "no_approver": CodeMeaning("report", "approvers of several policies who have nobody in common"),
    "none_in_context": CodeMeaning("report", "a `when` that does not hold for a context of None"),
    "shadowed": CodeMeaning("report", "another rule denies the same calls"),
    "taken_literally": CodeMeaning("report", "an operand that is compared as a text or a whole list, as it stands"),
    "understood_in_part": CodeMeaning("report", "a tool goes by a portable name, and takes what nobody understands"),
    "starts_full": CodeMeaning("report", "a line that allows the first calls before what allows more of them"),
    "unbounded_net": CodeMeaning("refuse", "the tokens of a net grow without bound"),
    "uncounted_limit": CodeMeaning("report", "a limit on something that the adapter does not report"),
    "unknown_input": CodeMeaning("report", "no tool of the agent has the input"),
    "unknown_model": CodeMeaning("report", "whether there is a price is only known later"),
    "unknown_options": CodeMeaning("report", "`runs` names an option whose other spellings are not known"),
    "unknown_tool": CodeMeaning("report", "the agent has no tool of the name"),
    "uncounted_budget": CodeMeaning("report", "a shared budget of something that the adapter does not report"),
    "unpriced": CodeMeaning("refuse", "`unpriced: reject`, and there is no price"),
    "virtual_evidence": CodeMeaning("report", "a name found by search counts as evidence"),
    "unused_name": CodeMeaning("report", "an alias or a virtual tool that no clause of its policy names"),
    "unused_place": CodeMeaning("report", "a place of a net that no transition takes from or gives to"),
    "zero_budget": CodeMeaning("refuse", "a shared budget of nothing"),
    "zero_limit": CodeMeaning("refuse", "no tokens, no turns or no time"),
}
"""Every code, with what comes of it by default."""


class PreflightFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong, or worth knowing, before a run starts.

    Attributes:
        code: The kind of finding, for programs.
        severity: `refuse`: no run starts; `report`: a warning.
        message: The problem, in words.
        policy: The policy, if it concerns one.
        rule: The rule's id.
        witness: The evidence, step by step.
        suggestion: How to fix it.
    """

    code: str
    severity: Severity
    message: str
    policy: str = ""
    rule: str = ""
    witness: tuple[str, ...] = ()
    suggestion: str = ""

    def __str__(self) -> str:
        place = rule_name(self.policy, self.rule)
        hint = f"; {self.suggestion}" if self.suggestion else ""
        return f"{place + ': ' if place else ''}{self.message}{hint}"


def finding(
    code: str,
    about: Clause | tuple[str, str],
    message: str,
    *,
    witness: Iterable[str] = (),
    suggestion: str = "",
    severity: Severity | None = None,
) -> PreflightFinding:
    """A finding of one of CODES about a clause, or about a policy and something else in it by name."""
    policy, rule = (about.policy, about.id) if isinstance(about, Clause) else about
    return PreflightFinding(
        code=code,
        severity=severity or CODES[code].severity,
        message=message,
        policy=policy,
        rule=rule,
        witness=tuple(witness),
        suggestion=suggestion,
    )


class Findings(list[PreflightFinding]):
    """The findings of preflight, those that prevent the run first."""

    def __init__(self, findings: Iterable[PreflightFinding] = ()) -> None:
        super().__init__(sorted(findings, key=lambda finding: finding.severity != "refuse"))

    @property
    def unfinished(self) -> bool:
        """Whether some checks were not finished."""
        return any(finding.code == "not_finished" for finding in self)

    @property
    def refusals(self) -> tuple[PreflightFinding, ...]:
        """The findings that prevent the run."""
        return tuple(finding for finding in self if finding.severity == "refuse")

    def check(self) -> None:
        """Raises PolicyViolationError with every finding that prevents the run, if there is one."""
        if refusals := self.refusals:
            raise PolicyViolationError("\n".join(map(str, refusals)), findings=refusals)


class SessionAnswer(msgspec.Struct, kw_only=True):
    """The fields that every answer has.

    Attributes:
        reason: One sentence: why it is so.
        session: The calls in order, each with `tool`, `input`, `decision` (`allow`, `warn`, `request_approval`,
            `deny`, `cancel`) and `outcome` (`completed`, `failed`, `denied`, `running`); where it matters also
            `output`, `approval` (`granted` or `declined`), `turn`, `run`, `ended_before_call` (the number of the call
            that it ended before), and `before`: what happened before the call. Empty in a proof.
        context: The run's context in that session, as far as a `when` or a path looks at it.
        explored: Figures: `classes` of calls, `states`, `depth` in calls, and `bounded`: what the search took for
            granted, one sentence each.
        certificates: What a proof stands on, one for each rule that it is about: the states that were reached, or
            what the stack has that is as strict.
    """

    verdict: ClassVar[Literal["proved", "refuted", "unknown"]]

    reason: str
    session: list[dict[str, Any]] = []
    context: dict[str, Any] = {}
    explored: dict[str, Any] = {}
    certificates: list[Any] = []


class Proved(SessionAnswer):
    """No session shows otherwise."""

    verdict = "proved"


class Refuted(SessionAnswer):
    """The `session` breaks the property; it was replayed on the real monitors.

    Attributes:
        violation: What the property finds in it.
        events: What happened in it, as the monitors observed it.
    """

    verdict = "refuted"

    violation: Violation
    events: list[Event] = []


class Unknown(SessionAnswer):
    """Neither proved nor refuted; `reason` says why."""

    verdict = "unknown"
