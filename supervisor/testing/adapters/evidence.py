"""What tests have seen an adapter do, compared with what it declares."""

from __future__ import annotations

from proctor.policies.stream.calls import Capabilities


class Evidence:
    """The base of a group of tests that show what an adapter can do.

    `row` names the row of a capability matrix that they are for. Once a test has run, `declared` is what the
    adapter declares and `shown` names the capabilities that the test has seen to be so; `compiles deny` is one
    part of `compiles`, and `sub_agents` says that what they do is held and counted as what their parent does.
    """

    row: str | None = None
    declared: Capabilities | None = None
    shown: frozenset[str] = frozenset()

    def saw(self, declared: Capabilities, **seen: object) -> None:
        """Record that an adapter was seen to do this; it must be exactly what it declares."""
        declarations = {name: getattr(declared, name) for name in seen}
        assert declarations == seen, f"declared {declarations}, seen {seen}"
        self.declared = declared
        self.shown |= seen.keys()

    def saw_sub_agents(self, declared: Capabilities) -> None:
        """Record that a sub-agent was seen to be bound by its parent's policy."""
        self.declared = declared
        self.shown |= {"sub_agents"}

    def saw_compiled(self, declared: Capabilities, part: str) -> None:
        """Record that a part of a policy was seen to hold as a launch option."""
        assert part in declared.compiles, f"`{part}` is not among the declared {declared.compiles}"
        self.declared = declared
        self.shown |= {f"compiles {part}"}
