"""What a `precondition` asks for: one requirement, and how it binds the judged call to an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET, UnsetType, field

from ...language.conditions import Condition
from ...language.record import Natural, Record
from ...language.selectors import HUMAN, Selector, selector_problems
from ...values import paths, regexes
from ...values.complaints import Complaint
from ..approval import PERSON, asks_person, calls_in
from ..machine import listed
from ..record import Fact
from ..wording import names


class Same(Record, frozen=True):
    """Binds the judged call to one earlier call: its values at `path` are among that call's values.

    Attributes:
        path: Where the value is in the judged call's input.
        prior_path: Where it is in the earlier call's input; `path` if nothing of the three is given.
        prior_output_path: Where it is in the earlier call's output.
        prior_output_regex: A regular expression whose captures in that output are the values.
    """

    path: str
    prior_path: str | None = None
    prior_output_path: str | None = None
    prior_output_regex: str | None = None

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        given = [n for n in ("prior_path", "prior_output_path", "prior_output_regex") if getattr(self, n) is not None]
        if len(given) > 1:
            yield (given[1],), f"`{given[0]}` and `{given[1]}` exclude each other"
        for name in ("path", "prior_path", "prior_output_path"):
            if (path := getattr(self, name)) is not None:
                yield from paths.problems(path, (name,))
        if self.prior_output_regex is not None:
            yield from regexes.problems(self.prior_output_regex, ("prior_output_regex",))

    @property
    def of_output(self) -> bool:
        """Whether the earlier call's values are in what it returned."""
        return self.prior_output_path is not None or self.prior_output_regex is not None


class Requirement(Record, frozen=True):
    """One requirement: `prior`, `turns_gte`, `user_said` or `any_of`.

    Attributes:
        prior: An earlier call; `human-approval` is a person's approval of the very call.
        must: What it must have done: `completed`, or only `started`.
        same: Bind it to the judged call: values that both have.
        output: Conditions on what it returned.
        pick: Which earlier call counts where several match: the `latest`, or `any`.
        turns_gte: The fewest responses of the model before the call.
        user_said: A regular expression that a message of the user matches.
        in_: Which message of the user: `any`, or the `latest`.
        any_of: One of these requirements is enough.
        description: For people: what is required, in words.
    """

    prior: Selector | UnsetType = UNSET
    must: Literal["completed", "started"] = "completed"
    same: tuple[Same, ...] = ()
    output: tuple[Condition, ...] = ()
    pick: Literal["latest", "any"] = "latest"
    turns_gte: Natural | UnsetType = UNSET
    user_said: str | UnsetType = UNSET
    in_: Literal["any", "latest"] = field(default="any", name="in")
    any_of: tuple[Requirement, ...] | UnsetType = UNSET
    description: str | None = None

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        kinds = ("prior", "turns_gte", "user_said", "any_of")
        given = [name for name in kinds if getattr(self, name) is not UNSET]
        if len(given) != 1:
            yield (), f"a requirement has one of {listed(kinds)}, this has {listed(given) or 'none'}"
        if self.prior is not UNSET:
            yield from selector_problems(self.prior, ("prior",), person=True)
            if self.asks_person and (self.same or self.output):
                yield (), f"`same` and `output` are of calls; `{HUMAN}` is none: list both under `any_of`"
        elif self.same or self.output:
            yield (), "`same` and `output` go with `prior`"
        if self.must == "started" and (self.output or any(same.of_output for same in self.same)):
            yield ("must",), "a call that only started has no output yet: `must: completed`"
        if self.user_said is not UNSET:
            yield from regexes.problems(self.user_said, ("user_said",))
        if self.any_of is not UNSET and not self.any_of:
            yield ("any_of",), "`any_of` lists no requirement"

    def words(self) -> str:
        """What it asks for, in a few words."""
        if self.any_of is not UNSET:
            return " or ".join(inner.words() for inner in self.any_of)
        if self.turns_gte is not UNSET:
            return f"{self.turns_gte} responses"
        return "a user message" if self.prior is UNSET else names(self.prior)

    @property
    def asks_person(self) -> bool:
        """Whether a person's approval meets it."""
        return self.prior is not UNSET and asks_person(self.prior)

    @property
    def free(self) -> bool:
        """Whether it can be met without an earlier call."""
        return (
            self.prior is UNSET or self.asks_person
            if self.any_of is UNSET
            else any(inner.free for inner in self.any_of)
        )

    @property
    def weakest(self) -> Literal["completed", "started"]:
        """How far a call that meets it must have got at least."""
        if self.any_of is UNSET:
            return self.must
        return "started" if any(inner.weakest == "started" for inner in self.any_of) else "completed"

    @property
    def link_word(self) -> str:
        """The word of a picture between what it asks for and the tool."""
        inner = (self,) if self.any_of is UNSET else self.any_of
        same = ", of the same" if any(each.same for each in inner) else ""
        return ("needs one of" if len(inner) > 1 else "needs") + same

    def sources(self) -> Iterator[Selector | Fact]:
        """What it asks for: calls, or a fact."""
        if self.any_of is not UNSET:
            for inner in self.any_of:
                yield from inner.sources()
        elif self.turns_gte is not UNSET:
            yield Fact(f"{self.turns_gte} responses")
        elif self.prior is not UNSET:
            if calls := calls_in(self.prior):
                yield calls
            if self.asks_person:
                yield Fact(PERSON)
        else:
            yield Fact(f"user said /{self.user_said}/")
