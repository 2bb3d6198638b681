"""Files of policy tests: sessions as lists of calls, with the decisions that are expected."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.adapters.kit.tool_names import CLIENTS, tools_of
from proctor.policies import CompiledPolicy, Policy, PolicyError, RunContext, compile_policy, merge_policies
from proctor.policies.errors import Problem
from proctor.policies.language.record import Amount, Name, Natural, Record
from proctor.policies.reading.convert import Converter
from proctor.policies.reading.folders import load_policies
from proctor.policies.reading.formats.source import read_source
from proctor.policies.reading.node_checks import INVALID
from proctor.policies.reading.reader import policies_of
from proctor.policies.reading.shapes import Open
from proctor.policies.reading.suggestions import did_you_mean
from proctor.policies.reading.tree import ListNode, MapNode, Node, ProblemReport, Scalar, join
from proctor.policies.values.complaints import Complaint

Answer: TypeAlias = Literal["allow", "warn", "request_approval", "deny", "cancel"]
Ending: TypeAlias = Literal["held", "violated", "not_exercised"]


class UsedBefore(Record, frozen=True):
    """What the agent used since the call before: tokens and USD."""

    input_tokens: Natural = 0
    output_tokens: Natural = 0
    cost_usd: Amount | None = None
    model: str | None = None


class ExpectedCall(Record, frozen=True):
    """One call and what is expected of it; `rules` are the ids of those that object, all of them.

    A call that may run returns `result`, or fails with `error`; one that waits for a person runs only where one of
    the two is given, and is declined otherwise. `user` is what the user wrote since the call before, `used` what the
    agent used, `after_s` the seconds that passed; `same_turn`: the same response of the model asks for it.
    """

    tool: Name
    input: dict[str, Any] = {}
    user: str | None = None
    used: UsedBefore | None = None
    after_s: Amount = 0
    same_turn: bool = False
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET
    expect: Answer = "allow"
    rules: tuple[Name, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def ended(self) -> bool:
        """Whether the file says how the call itself ended."""
        return self.result is not msgspec.UNSET or self.error is not msgspec.UNSET

    def problems(self) -> Iterator[Complaint]:
        """A call ends once, and a refused one not at all."""
        if self.result is not msgspec.UNSET and self.error is not msgspec.UNSET:
            yield ("error",), "a call has a `result` or an `error`, not both"
        elif self.ended and self.expect in ("deny", "cancel"):
            key = "error" if self.result is msgspec.UNSET else "result"
            yield (key,), f"a call that is refused has no `{key}`"


class PolicyTest(Record, frozen=True):
    """One session, its calls in order, and the statuses of rules at its end that are expected.

    In a file a call may be the name of a tool alone, and a test may have the `expect` of its last call.
    `agent` is the adapter whose names of tools the calls have; without one a tool is what it is called.
    """

    name: Name
    agent: str | None = None
    context: dict[str, Any] = {}
    calls: tuple[ExpectedCall, ...] = ()
    ends: dict[str, Ending] = {}

    def problems(self) -> Iterator[Complaint]:
        """Nothing follows a cancelled run, something is expected, and of a known agent."""
        if self.agent is not None and not tools_of(self.agent):
            hint = did_you_mean(self.agent, CLIENTS) or f"known here: {', '.join(CLIENTS)}"
            yield ("agent",), f"the tools of `{self.agent}` are not known; {hint}"
        if self.calls and self.calls[0].same_turn:
            yield ("calls", 0, "same_turn"), "there is no call before"
        for index, call in enumerate(self.calls[:-1]):
            if call.expect == "cancel":
                yield ("calls", index + 1), "no call comes after one that ends the run"
        if not self.calls and not self.ends:
            yield (), "the test expects nothing; give it `calls` or `ends`"


class _File(Record, frozen=True):
    policies: tuple[str | dict[str, Any], ...]
    tests: tuple[PolicyTest, ...]

    def problems(self) -> Iterator[Complaint]:
        for key in ("policies", "tests"):
            if not getattr(self, key):
                yield (key,), f"there are no {key}"
        names = [test.name for test in self.tests]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("tests", index, "name"), f"another test is called `{name}`"


class PolicyTests(msgspec.Struct, frozen=True):
    """The tests of one file, each with its context, and the stack of policies they are about."""

    file: str
    compiled: CompiledPolicy
    tests: tuple[tuple[PolicyTest, RunContext], ...]


def read_policy_tests(text: str, file: str, folder: Path) -> PolicyTests:
    """Read a file of policy tests; the policies it names are files relative to `folder`.

    Raises:
        PolicyError: it is wrong, or a policy is; every problem is listed.
    """
    roots, report = read_source(text, ProblemReport(file), file, None)
    root = roots[0]
    for more in roots[1:]:
        report.add("a file of tests is one document", more.span)
    for test in _items(root, "tests"):
        if isinstance(test, MapNode):
            _write_out(test, report)
    given = Converter(report, {}).record(_File, root)
    nodes = [node for node in _items(root, "tests") if isinstance(node, MapNode)]
    contexts = [_context(node.entries.get("context"), report) for node in nodes]
    policies, elsewhere = _policies(root, report, folder)
    _raise_all(report, elsewhere)
    assert given is not INVALID
    compiled = _compiled(policies, file)
    rules = compiled.monitor(RunContext()).report().rules
    for node in nodes:
        _check_ends(node, rules, report)
    report.raise_if_any()
    return PolicyTests(file, compiled, tuple(zip(given.tests, contexts, strict=True)))


def _write_out(test: MapNode, report: ProblemReport) -> None:
    """Make calls of names alone whole, and give the `expect` of a test to its last call."""
    calls = test.entries.get("calls")
    if isinstance(calls, ListNode):
        calls.items = [
            MapNode({"tool": call}, {"tool": call.span}, call.span, call.path) if isinstance(call, Scalar) else call
            for call in calls.items
        ]
    if "expect" not in test.entries:
        return
    last = calls.items[-1] if isinstance(calls, ListNode) and calls.items else None
    if not isinstance(last, MapNode) or "expect" in last.entries:
        why = "its last call has one" if isinstance(last, MapNode) else "it has no call"
        report.add(f"the `expect` of a test is that of its last call, and {why}", test.key_span("expect"), test.path)
    else:
        last.entries["expect"], last.key_spans["expect"] = test.entries["expect"], test.key_span("expect")
    del test.entries["expect"]


def _items(root: MapNode, key: str) -> list[Node]:
    listed = root.entries.get(key)
    return listed.items if isinstance(listed, ListNode) else []


def _policies(root: MapNode, report: ProblemReport, folder: Path) -> tuple[list[Policy], list[Problem]]:
    """The policies, written here or named, and the problems of the files that were named."""
    found: list[Policy] = []
    elsewhere: list[Problem] = []
    for node in _items(root, "policies"):
        if isinstance(node, MapNode):
            found += policies_of([node], report)
        elif isinstance(node, Scalar) and isinstance(node.value, str):
            path = folder / node.value
            if not path.exists():
                report.add(f"there is no file `{path}`", node.span, node.path)
                continue
            try:
                found += load_policies(path)
            except PolicyError as error:
                elsewhere += error.problems
    return found, elsewhere


def _raise_all(report: ProblemReport, elsewhere: list[Problem]) -> None:
    try:
        report.raise_if_any()
    except PolicyError as error:
        raise PolicyError([*error.problems, *elsewhere]) from None
    if elsewhere:
        raise PolicyError(elsewhere)


def _compiled(policies: list[Policy], file: str) -> CompiledPolicy:
    try:
        return compile_policy(merge_policies(policies))
    except PolicyError as error:
        replace = msgspec.structs.replace
        raise PolicyError([each if each.file else replace(each, file=file) for each in error.problems]) from None


def _context(node: Node | None, report: ProblemReport) -> RunContext:
    """What rules name in `when`; what is no mapping, or no JSON, is reported elsewhere."""
    if not isinstance(node, MapNode):
        return RunContext()
    fields = RunContext.__struct_fields__
    values: dict[str, Any] = {}
    for key, child in node.entries.items():
        if key not in fields:
            hint = did_you_mean(key, fields) or f"known here: {', '.join(fields)}"
            report.add(f"unknown key `{key}`", node.key_span(key), join(node.path, key), hint)
            continue
        value = Converter(ProblemReport(), {}).value(Open(), child)
        if value is INVALID:
            continue
        try:
            msgspec.convert({key: value}, RunContext)
        except msgspec.ValidationError:
            wanted = "a mapping" if key in ("labels", "metadata") else "text"
            report.add(f"`{key}` is {wanted}", child.span, child.path)
        else:
            values[key] = value
    return RunContext(**values)


def _check_ends(node: MapNode, rules: Collection[str], report: ProblemReport) -> None:
    ends = node.entries.get("ends")
    if not isinstance(ends, MapNode):
        return
    for key in ends.entries:
        if key not in rules:
            hint = did_you_mean(key, rules) or f"there are {', '.join(rules) or 'none'}"
            report.add(f"no rule is called `{key}`", ends.key_span(key), join(ends.path, key), hint)
