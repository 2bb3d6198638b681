"""Generated stacks with a question about each, over the whole language, for `proofs`.

They name few tools and few values, so that calls interact, and half of the properties resemble the stack, so that
there is something to prove.
"""

import json
import random
from copy import deepcopy
from typing import Any, Final, NamedTuple

import msgspec

from proctor.policies import Check, Policy, RunContext, merge_policies, parse_policies
from proctor.policies.analysis.questions import read_selector
from proctor.policies.events.run_context import Tool
from proctor.policies.policy import Deny, members_of

TOOLS: Final = ("a", "b", "c")
SHELL: Final = Tool(name="Shell", acts=("bash",), inputs={"command": ("$.cmd",)})
PATCH: Final = Tool(
    name="Patch",
    acts_where={"write": ("$.new",), "edit": ("$.changes[?@.kind == 'update']",)},
    inputs={"path": ("$.new", "$.changes[*].path")},
)
TABLE: Final = (SHELL, PATCH, Tool(name="a"), Tool(name="b"))
WHERES: Final[dict[str, list[list[dict[str, Any]]]]] = {
    "n": [
        [{"path": "$.n", "gt": 5}],
        [{"path": "$.n", "lte": 10}],
        [{"path": "$.n", "gte": 50}],
        [{"path": "$.n", "equals": 5}],
        [{"path": "$.n", "equals": 1}],
        [{"path": "$.n", "equals": True}],
        [{"path": "$.n", "in": [5, 50]}],
        [{"path": "$.n", "not_equals": 50}],
        [{"path": "$.n", "type": "integer"}],
        [{"not": [{"path": "$.n", "lt": 50}]}],
        [{"path": "$.n", "gt": 5.5, "lt": 7.2}],
        [{"path": "$.n", "equals": "5"}],
        [{"path": "$.n", "type": ["array", "string"]}],
    ],
    "id": [
        [{"path": "$.id", "equals": "k1"}],
        [{"path": "$.id", "exists": True}],
        [{"path": "$.id", "not_in": ["k1"]}],
        [{"path": "$.id", "equals": 7}],
        [{"path": "$.id", "in": ["k2", "07"]}],
    ],
    "line": [
        [{"path": "$.line", "regex": r"\bgit\s+push\b"}],
        [{"path": "$.line", "regex": "^git"}],
        [{"path": "$.line", "contains": "git"}],
        [{"path": "$.line", "runs": ["rm", "git push"]}],
        [{"path": "$.line", "length_gte": 5}],
        [{"path": "$.line", "type": "string", "length_lte": 4}],
        [{"path": "$.line", "type": "string", "regex": "^git"}],
        [{"path": "$.line", "regex": "^git push$"}],
        [{"path": "$.line", "regex": "(?is)^K.*[😀-😂]$"}],
        [{"path": "$.line", "in": ["git push", "ls", None]}],
        [{"path": "$.line", "gte": "git push", "lt": "ls"}],
        [{"path": "$.line", "lte": "git push"}],
    ],
    "file": [
        [{"path": "$.file", "within": "/srv"}],
        [{"path": "$.file", "within": "/srv/data"}],
        [{"not": [{"path": "$.file", "within": "/srv/data"}]}],
    ],
    "to": [
        [{"path": "$.to[*]", "not_in": ["x@a.com"]}],
        [{"path": "$.to[*]", "regex": "@a[.]com$"}],
        [{"path": "$.to[*]", "equals": "x@a.com", "at_least": 2}],
        [{"path": "$.to", "set_equals": ["x@a.com", "y@a.com"]}],
        [{"path": "$.to", "length": 1}],
        [{"path": "$.to[0]", "equals": "x@a.com"}],
        [{"path": "$.to[-1]", "equals": "x@a.com"}],
        [{"path": "$.to[-2]", "exists": True}],
        [{"path": "$.to[-1]", "regex": "@a[.]com$"}],
        [{"path": "$.to[-1]", "not_in": ["x@a.com", "e@b.com"]}],
        [{"path": "$.to[*]", "type": "array"}],
    ],
    "n and id": [
        [{"any_of": [{"path": "$.n", "lte": 5}, {"path": "$.id", "equals": "k1"}]}],
        [{"path": "$.n", "gt": 5}, {"path": "$.id", "exists": True}],
    ],
}  # fmt: skip
VALUES: Final[dict[str, list[Any]]] = {
    "id": ["k1", "k2", 7, "7", None, "", "é", "k\n1", "07", ["k1", "k2"], ["k1", 7]],
    "n": [5, 50, 4, 7.5, "5", "zz", True, 1, None, [5], 6, "05", 5.0, -0.0, 1e308, {"n": 5}],
    "line": ["git push", "ls", "git status", "rm x", "echo git push", ["git", "push"], ["git push"], "ls && git push",
        "", "git push\n", "x\ngit push", "\u212a\n😂", "k😀"],
    "file": ["/srv/data/x", "/etc/p", "/srv/y", "../x", "rel", ["/srv/data/x", "/etc/q"]],
    "to": [["x@a.com"], ["x@a.com", "y@a.com"], "x@a.com", ["x@a.com", "e@b.com"], [], "e@b.com", [["x@a.com"]]],
    "cmd": ["git push", "ls", "rm -rf x"],
    "new": ["/srv/data/x", "/etc/p", None, ["/srv/y", "/etc/q"]],
    "changes": [[{"kind": "update", "path": "/srv/data/x"}], [{"kind": "other", "path": "/etc/p"}],
        [{"kind": "update", "path": "/etc/p"}, {"kind": "update", "path": "/srv/y"}], [{"kind": "update"}],
        "update"],
}  # fmt: skip
"""The inputs of calls; brute force uses two, mostly the first, random walks use all."""
OUTPUTS: Final[list[Any]] = [
    "done",
    {"ok": True, "id": "k1"},
    {"ok": False, "id": "k2"},
    "id=k1",
    {"id": 7, "n": 50},
    '{"ok": true, "id": "k1"}',
    None,
    {"ok": "true", "id": ["k1", "k2"]},
    {"ok": True, "said": "id=k1"},
]
MESSAGES: Final = ["go k1", "stop", "K1", "use k2 and 7", "GO\nK1", "k12", "no"]
CONTEXTS: Final[dict[str, list[Any]]] = {"user_role": ["admin", "dev", None], "tenant": ["t", None]}
WHENS: Final[list[list[dict[str, Any]]]] = [
    [{"path": "$.user_role", "equals": "admin"}],
    [{"path": "$.user_role", "not_equals": "admin"}],
    [{"path": "$.tenant", "exists": True}],
]
NETS: Final[list[Any]] = [
    "require a before b",
    "block c",
    "limit a to 2 per session",
    "limit b to 1 per a",
    "require human-approval before c",
    {"line": "require c before a", "action": "request_approval"},
    {
        "name": "lock",
        "places": ["free", "held"],
        "initial_marking": {"free": 1},
        "transitions": [
            {"name": "take", "inputs": ["free"], "outputs": ["held"], "tools": ["a"], "deferred": True},
            {"name": "give", "inputs": ["held"], "outputs": ["free"], "tools": ["b"]},
            {"name": "ask", "type": "manual", "inputs": ["held"], "outputs": ["held"], "tools": ["c"]},
        ],
        "free_tools": ["Shell"],
    },
    {
        "name": "steps",
        "action": "request_approval",
        "places": ["open", "drawn", "checked"],
        "initial_marking": {"open": 1},
        "terminal_places": ["checked"],
        "transitions": [
            {"name": "draw", "inputs": ["open"], "outputs": ["drawn"], "tools": ["a", "b"], "deferred": True},
            {"name": "check", "inputs": ["drawn"], "outputs": ["checked"], "tools": ["c"], "deferred": True},
            {"name": "again", "type": "manual", "inputs": ["checked"], "outputs": ["open"], "tools": ["a"]},
        ],
    },
    {
        "name": "bank",
        "places": ["money"],
        "transitions": [
            {"name": "in", "inputs": [], "outputs": ["money"], "tools": ["a"]},
            {"name": "out", "inputs": ["money"], "outputs": [], "tools": ["b"]},
        ],
    },
    {
        "name": "self",
        "places": ["x", "y", "z"],
        "initial_marking": {"x": 1},
        "transitions": [
            {"name": "go", "inputs": ["x"], "outputs": ["y", "y"], "tools": ["a"]},
            {"name": "auto", "inputs": ["y", "y"], "outputs": ["z"]},
            {"name": "end", "inputs": ["z"], "outputs": ["x"], "tools": ["b"]},
        ],
    },
]  # fmt: skip
PLACES: Final[list[dict[str, Any]]] = [
    {"within": "/srv"}, {"equals": "/srv/data/x"}, {"exists": True}, {"regex": "^/etc"}
]  # fmt: skip
VIRTUAL: Final[list[dict[str, Any]]] = [
    {"tool": "a", "path": "$.line", "match": r"\bgit\b", "as": "git"},
    {"tool": "*", "path": "$.line", "match": "^ls", "as": "b"},
]
ALIASES: Final = {"Both": ["a", "b"]}
PEOPLE: Final = ("alice", "bob", "@ops")
USED: Final = ("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_cost_usd")
SHARED: Final = ("nets", "limits", "tool_rules", "budgets", "approval")
"""Fields other than rules that a stack often shares with the policy it is compared with."""
QUESTIONS: Final = ("keeps", "keeps", "no_looser_than", "no_looser_than", "same_as", "reach")


def either(call: Any) -> bool:
    """A Python check; the driver of a session decides its result."""
    return bool(call)


class Pair(NamedTuple):
    """A stack with one question, as for `verify`; `refuses`: it may deny any call, by a check or a budget that is not
    simulated.
    """

    stack: Policy
    question: str
    argument: Any
    tools: tuple[Tool, ...] | None
    context: RunContext | None
    written: Any
    refuses: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `verify` besides the stack."""
        return {self.question: self.argument, "tools": self.tools, "context": self.context}

    @property
    def other(self) -> Policy:
        """The policy that is compared with the stack."""
        given: Policy = self.argument
        if self.question != "reach":
            return played(given)
        denied: Deny = read_selector(self.argument)
        aliases, virtual = self.stack.aliases, self.stack.virtual_tools
        return Policy(name="reach", tool_rules=[denied], aliases=aliases, virtual_tools=virtual)

    @property
    def says(self) -> str:
        """All of it as text."""
        return json.dumps(self.written)

    @property
    def fields(self) -> list[str]:
        """The inputs that are read."""
        portable = ("cmd", *(("new", "changes") if "write" in self.says or "edit" in self.says else ()))
        return [name for name in VALUES if f"$.{name}" in self.says or (self.tools and name in portable)]

    def names(self) -> tuple[str, ...]:
        """The tools that are called."""
        return tuple(tool.name for tool in self.tools) if self.tools else TOOLS


def played(stack: Policy) -> Policy:
    """A stack as brute force runs it: without its checks."""
    members = (
        msgspec.structs.replace(each, rules=tuple(rule for rule in each.rules if not isinstance(rule, Check)))
        for each in members_of(stack)
    )
    return merge_policies(list(members))


def pair(rng: random.Random) -> Pair:
    """A stack of one to three policies, and a question."""
    return _Generator(rng).pair()


class _Generator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.portable = self.chance(0.15)
        self.keyed = self.chance(0.3)
        self.fields = rng.sample(list(WHERES), rng.randint(1, 2)) if self.chance(0.6) else []
        self.virtual = self.chance(0.1)
        self.aliases = self.chance(0.1)
        self.whens = self.chance(0.15)
        self.asks = self.chance(0.1)
        self.patches = self.portable and self.chance(0.6)
        self.bases: list[str] = [*TOOLS, *(["Shell", "bash"] if self.portable else ())]
        self.bases += ["Patch", "write", "edit", "write", "edit"] if self.patches else []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def tool(self) -> str:
        """A name or a pattern."""
        if self.virtual and self.chance(0.4):
            return self.rng.choice(["git", "g*"])
        if self.aliases and self.chance(0.4):
            return "Both"
        return self.rng.choice([*self.bases, *self.bases, *TOOLS, "*", "[ab]", "A"])

    def item(self) -> Any:
        if self.fields and self.chance(0.35):
            return {"tool": self.tool(), "where": self.rng.choice(WHERES[self.rng.choice(self.fields)])}
        if self.patches and self.chance(0.3):
            tool = self.rng.choice(["write", "edit", "Patch", "*"])
            return {"tool": tool, "where": [{"path": "$.path", **self.rng.choice(PLACES)}]}
        if self.portable and self.chance(0.3):
            return {"tool": "bash", "where": [{"path": "$.command", "runs": "git push"}]}
        return self.tool()

    def items(self) -> list[Any]:
        return [self.item() for _ in range(self.rng.choice([1, 1, 2]))]

    def selector(self) -> Any:
        """As in a rule."""
        return self.items() if self.chance(0.1) else self.item()

    def requirement(self, *, nested: bool = False) -> dict[str, Any]:
        rng = self.rng
        prior: dict[str, Any] = {"prior": self.selector(), "pick": rng.choice(["latest", "any"])}
        binding = rng.choice(
            [{"path": "$.id"}, {"path": "$.id", "prior_output_path": "$.id"}, {"path": "$.id", "prior_path": "$.n"}]
        )
        output = rng.choice([{"path": "$.ok", "equals": True}, {"path": "$.id", "equals": {"arg": "$.id"}}])
        some: list[dict[str, Any]] = [
            {"turns_gte": rng.randint(1, 2)},
            {"prior": "human-approval"},
            {"user_said": rng.choice(["go", r"\bk1\b"]), "in": rng.choice(["any", "latest"])},
            prior,
            {"prior": self.selector(), "must": "started"},
            {**prior, "same": [binding]},
            {"prior": self.selector(), "must": "started", "same": [{"path": "$.id"}]},
            {**prior, "same": [{"path": "$.id", "prior_output_regex": r"id=(\w+)"}]},
            {**prior, "output": [output]},
            {**prior, "output": [output], "same": [{"path": "$.id", "prior_output_regex": r"id\W+(\w+)"}]},
        ]
        if not nested and self.chance(0.15):
            return {"any_of": [self.requirement(nested=True), self.requirement(nested=True)]}
        return rng.choice(some)

    def rule(self) -> dict[str, Any]:
        rng, t, most = self.rng, self.selector, self.rng.randint(0, 2)
        of = rng.choice(["started", "completed", "attempted"])
        count = {"type": "count", "tool": t()}
        before = {"type": "before", "then": t(), "first_must": rng.choice(["started", "completed"])}
        users: list[Any] = ["user_message", {"tool": self.tool(), "path": "$.id"}]
        source: dict[str, Any] = {"type": "provenance", "tool": t(), "path": "$.id"}
        families: list[dict[str, Any]] = [
            {"type": "allowlist", "tools": [*self.items(), self.tool()]},
            {"type": "blocklist", "tools": self.items()},
            {"type": "require", "tool": t()},
            {**count, "max": most, "of": of},
            {**count, "max": most, "of": of, "within_turns": rng.randint(1, 2)},
            {**count, "min": 1},
            {**count, "exact": rng.randint(0, 2), "of": of},
            {"type": "max_calls", "tool": t(), "max": most},
            {**before, "first": t()},
            {**before, "first": t()},
            {"type": "before", "first": "human-approval", "then": t()},
            {"type": "immediately_before", "first": t(), "then": t()},
            {"type": "after", "trigger": t(), "then": t(), "within": rng.randint(1, 2)},
            {"type": "eventually", "tool": t(), "within": rng.randint(1, 3)},
            {"type": "never_after", "trigger": t(), "forbidden": t()},
            {"type": "forbids_after", "tool": t(), "tools": self.items()},
            {"type": "sequence", "tools": [t(), t()], "strict": self.chance(0.5)},
            {"type": "forbidden_sequence", "sequence": [t(), t()], "adjacency": rng.choice(["strict", "any"])},
            {
                "type": "forbidden_sequence",
                "sequence": [
                    {"tool": self.tool(), "where": rng.choice(WHERES["id"])} for _ in range(rng.choice([2, 2, 3]))
                ],
                "adjacency": rng.choice(["strict", "any"]),
            },
            {"type": "sequence", "tools": [t(), t(), t()], "strict": self.chance(0.5)},
            {"type": "precondition", "tool": t(), "requires": [self.requirement()]},
            {"type": "precondition", "tool": t(), "requires": [self.requirement(), self.requirement()]},
            {**source, "from": rng.choice([users, users[:1], users[1:]])},
            {**source, "from": [{"tool": self.tool(), "regex": r"id=(\w+)"}], "except": ["k2"]},
            {**source, "from": users[:1], "extract": r"k\d"},
            {"type": "loop", "window": 3, "threshold": rng.randint(1, 2), "tool": t()},
            {"type": "max_parallel", "max": most, "tool": t()},
            {"type": "circuit_breaker", rng.choice(["consecutive", "total"]): rng.randint(1, 2)},
        ]
        made = rng.choice(families)
        keyless = ("require", "eventually", "allowlist", "blocklist", "circuit_breaker", "provenance", "precondition")
        if self.keyed and made["type"] not in keyless and self.chance(0.6):
            made["key"] = rng.choice(["$.id", "$.id", "$[*]", "$.to[*]"])
        if made["type"] == "precondition" and self.keyed and self.chance(0.15):
            made["key"] = "$.n"
        if self.chance(0.15):
            made["action"] = rng.choice(["warn", "request_approval", "cancel", "deny"])
        if self.whens and self.chance(0.5):
            made["when"] = rng.choice(WHENS)
        return made

    def rules(self, most: int) -> list[dict[str, Any]]:
        """Rules of any family; sometimes an order of two tools with a rule that forbids it."""
        rng = self.rng
        made = [self.rule() for _ in range(rng.randint(0 if most > 1 or self.chance(0.04) else 1, most))]
        if self.chance(0.08):
            first, then = self.item(), self.item()
            made += [
                {"type": "before", "first": first, "then": then, "first_must": rng.choice(["started", "completed"])},
                {"type": "forbids_after", "tool": rng.choice([first, then, self.item()]), "tools": [then]},
            ]
        return made

    def policy(self, name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
        """A policy with these rules, sometimes with more."""
        rng = self.rng
        action = "deny" if self.chance(0.8) else rng.choice(["cancel", "request_approval", "warn"])
        action = "request_approval" if self.asks and self.chance(0.5) else action
        written: dict[str, Any] = {"name": name, "on_violation": action, "rules": rules}
        if self.chance(0.2):
            written["nets"] = rng.sample(NETS, 1)
        if self.chance(0.12):
            scope = rng.choice(["run", "session"])
            name = rng.choice(["max_tool_calls", "max_turns", *USED, "max_duration_ms", "max_idle_ms"])
            written["limits"] = {name: {"max": rng.randint(1, 2), "scope": scope}}
            if self.chance(0.4):
                written["limits"][name]["action"] = rng.choice(["deny", "warn", "request_approval", "cancel"])
        if self.chance(0.05):
            written["budgets"] = [
                {"name": "shared", rng.choice(["max_tool_calls", "max_cost_usd"]): rng.randint(1, 2)}
            ]
        if self.chance(0.5 if self.asks else 0.03):
            written["approval"] = self.approval()
        if self.chance(0.2):
            written["tool_rules"] = [{rng.choice(["deny", "allow"]): [*self.items(), self.tool()]}]
        if self.virtual:
            written["virtual_tools"] = rng.sample(VIRTUAL, 1)
        if self.aliases:
            written["aliases"] = ALIASES
        if self.chance(0.15):
            written["locked"] = True
        return written

    def approval(self) -> dict[str, Any]:
        """Who may approve, and in which scope."""
        written: dict[str, Any] = {"on_timeout": self.rng.choice(["deny", "cancel"])}
        if self.chance(0.3):
            written["scope"] = self.rng.choice(["once", "run", "session"])
        if self.chance(0.4):
            written["approvers"] = self.rng.sample(PEOPLE, self.rng.randint(1, 2))
        if self.chance(0.3):
            written["four_eyes"] = True
        return written

    def mutated(self, rule: dict[str, Any]) -> dict[str, Any]:
        """A slightly different rule."""
        rule = deepcopy(rule)
        numbers = [name for name in ("max", "exact", "min", "within", "total", "consecutive") if name in rule]
        ways = [*numbers, "same", "action", "tool", "tool", "key"]
        way = self.rng.choice(ways)
        if way in numbers:
            rule[way] += 1
        elif way == "action":
            rule["action"] = self.rng.choice(["deny", "cancel", "request_approval"])
        elif way == "tool":
            names = [n for n in ("tool", "then", "first", "trigger", "forbidden") if n in rule]
            if names:
                name = self.rng.choice(names)
                where = rule[name].get("where") if isinstance(rule[name], dict) else None
                rule[name] = {"tool": self.tool(), "where": where} if where else self.tool()
        elif way == "key" and "key" in rule:
            del rule["key"]
        return rule

    def pair(self) -> Pair:
        rng = self.rng
        theirs = self.policy("other", self.rules(1) + ([self.rule()] if self.chance(0.25) else []))
        rules = self.rules(2)
        if self.chance(0.6):
            rules += [self.mutated(rule) for rule in theirs["rules"]]
        members = [self.policy("other" if self.chance(0.15) else "stack", rules)]
        if self.chance(0.6):
            members[0] |= {name: theirs[name] for name in SHARED if name in theirs}
        if self.chance(0.25):
            members.append(self.policy("second", [self.rule() for _ in range(rng.randint(0, 2))]))
        if self.chance(0.1):
            members.append(self.policy("third", [self.rule()]))
        question = rng.choice(QUESTIONS)
        reached = self.item()
        parsed = [each for member in members for each in parse_policies(member)]
        other = merge_policies(parse_policies(theirs))
        refuses = any("budgets" in member for member in members)
        if self.chance(0.06):
            refuses, check = True, Check(check=either, id="either", action=rng.choice(["deny", "request_approval"]))
            parsed.append(Policy(name="checked", on_violation="deny", rules=[check]))
            if self.chance(0.3):
                other = merge_policies([other, parsed[-1]])
        if refuses and question == "same_as":
            question = "no_looser_than"
        stack = merge_policies(parsed)
        argument = reached if question == "reach" else other
        context = RunContext(user_role="admin", tenant="t") if self.whens and self.chance(0.3) else None
        written = {"stack": members, question: reached if question == "reach" else theirs}
        return Pair(stack, question, argument, TABLE if self.portable else None, context, written, refuses)
