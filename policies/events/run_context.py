"""What is known of a run beside its events: its context, its agent's tools and capabilities, its usage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal

import msgspec

PORTABLE: Final[dict[str, tuple[str, ...]]] = {
    "bash": ("command",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("path", "content"),
    "delete": ("path",),
    "move": ("path", "to"),
    "glob": ("pattern", "path"),
    "grep": ("pattern", "path"),
    "fetch": ("url",),
    "web_search": ("query",),
    "task": ("prompt",),
}
"""The portable names of tools, and the inputs of each."""

_ANY_ACT: Final = (
    "description explanation instruction reason thought timeout timeout_ms timeout_s timeout_seconds title "
    "wait_for_previous"
)

_HARMLESS: Final[dict[str, str]] = {
    "bash": "background capture_output max_output_length persistent run_in_background",
    "read": "encoding end end_line limit line_end line_start lines max_bytes max_chars max_lines offset pages "
    "read_range start start_line view_range",
    "write": "append create_dirs create_parents encoding mode newline overwrite",
    "edit": "all_occurrences allow_multiple cell_id cell_number cell_type edit_mode encoding end_line "
    "expected_replacements insert_line line_number old oldString oldText old_str old_string old_text "
    "replaceAll replace_all start_line",
    "delete": "force missing_ok recursive",
    "move": "force overwrite",
    "glob": "caseSensitive case_sensitive exclude file_filtering_options ignore limit max_results offset recursive "
    "respect_gemini_ignore respect_git_ignore sort",
    "grep": "-A -B -C -i -n -o caseSensitive case_sensitive context context_lines exclude exclude_pattern glob "
    "head_limit ignore_case include include_pattern limit max_matches_per_file max_results multiline names_only "
    "offset output_mode recursive total_max_matches type",
    "fetch": "body data format headers json max_chars max_length method prompt raw start_index",
    "web_search": "allowed_domains blocked_domains count exclude_domains include_domains k language limit "
    "max_results n num_results region safesearch search_depth time_range topic",
    "task": "agent model name run_in_background subagent_type",
}

_MOST_SPLITS: Final = 64
"""No name that a model may call is longer."""
HARMLESS: Final = {act: frozenset(f"{_ANY_ACT} {names}".split()) for act, names in _HARMLESS.items()}
"""The inputs of an act that have no portable name and change nothing of what the portable ones say."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool of a client.

    `acts` are the portable names of every call of it; those of `acts_where` are a call's whose input has a value at
    one of the paths (a patch may write, edit and delete). `synonyms` are more names that the client has for it.
    `inputs` has, for a portable input, the paths of its values in the client's own input. `takes` has the client's
    own inputs where they are known, for finding a misspelt one.

    A tool whose act is inferred from its name is understood only in part where it takes more than the act has:
    `unclear` are the parameters that nobody understands, or the missing one without which the act is unclear.
    What such a tool is given is not known until it is called if it is `inferred`: each call is looked at then. So is
    each call of any tool, for the inputs that its act is evaluated by. A call that is understood in part is denied by
    its portable names as any, and allowed only by its own. An input that its act has and need not have is not known
    where a call lacks it and has one that nobody knows: it may be the same under another name.

    A name with two `*` is a family's, of a server and its tool: `mcp_*_*` does `mcp__*__*`. Where one name can be
    split in several ways, its calls do all of these.
    """

    name: str
    acts: tuple[str, ...] = ()
    acts_where: dict[str, tuple[str, ...]] = {}
    synonyms: tuple[str, ...] = ()
    inputs: dict[str, tuple[str, ...]] = {}
    takes: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    inferred: bool = False

    @property
    def every_act(self) -> tuple[str, ...]:
        """The portable names of all that its calls may do."""
        return (*self.acts, *self.acts_where)

    @property
    def is_family(self) -> bool:
        """Whether this is every tool whose name is so built."""
        return self.name.count("*") == 2

    def readings(self, name: str) -> Iterator[str]:
        """What a tool with this name does as one of this family; nothing if it is none."""
        before, between, _ = self.name.split("*")
        rest = name.removeprefix(before)
        splits = re.finditer(f"(?<=.)(?={re.escape(between)}.)", rest) if name.startswith(before) else ()
        for split in islice(splits, _MOST_SPLITS):
            parts = rest[: split.start()], rest[split.start() + len(between) :]
            for first, *others in (act.split("*") for act in self.acts):
                yield first + "".join(part + other for part, other in zip(parts, others, strict=False))

    def unknown_among(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these inputs of which it is not known what they change."""
        at = (path for paths in self.inputs.values() for path in paths)
        understood = {*self.takes, *(root_of(path) for path in at)}.union(*(HARMLESS[act] for act in self.every_act))
        return frozenset(names) - understood

    def __hash__(self) -> int:
        return hash(self.name)


def needed(act: str) -> tuple[str, ...]:
    """The inputs without which a call could not be evaluated as an act; none of an act with another name."""
    inputs = PORTABLE.get(act, ())
    return inputs if act == "move" else inputs[:1]


def optional(act: str) -> tuple[str, ...]:
    """The other inputs of an act."""
    return PORTABLE.get(act, ())[len(needed(act)) :]


def root_of(path: str) -> str:
    """The input that a path begins at: `action` of `$.action.command`."""
    return re.split(r"[.\[]", path.removeprefix("$."), maxsplit=1)[0]


def portable(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools that go by portable names, as a run's record keeps them; `recorded` reads them back."""
    acting = [each for each in tools if each.every_act]
    described = (each if each.inferred else msgspec.structs.replace(each, takes=()) for each in acting)
    return [msgspec.to_builtins(each) for each in described]


def recorded(written: Any) -> tuple[Tool, ...]:
    """The tools that a run's record keeps; empty where the record does not hold tools."""
    try:
        return msgspec.convert(written, tuple[Tool, ...])
    except msgspec.ValidationError:
        return ()


def recorded_context(written: Any) -> RunContext | None:
    """The context that a run's record keeps; None where the record does not hold one."""
    try:
        return msgspec.convert(written, RunContext)
    except msgspec.ValidationError:
        return None


def tool(name: str, act: str, *takes: str, synonyms: tuple[str, ...] = (), **inputs: str | tuple[str, ...]) -> Tool:
    """A tool of one act, as tables write it: `tool("Write", "write", "content", path="$.file_path")`.

    Args:
        name: what the client calls it.
        act: its portable name.
        takes: inputs it calls as everybody does, or that have no portable name.
        synonyms: more names that the client has for it.
        inputs: for a portable input, where the client's own input has it.
    """
    at: dict[str, tuple[str, ...]] = {key: (f"$.{key}",) for key in PORTABLE.get(act, ()) if key in takes}
    at |= {key: (path,) if isinstance(path, str) else path for key, path in inputs.items()}
    own = (root_of(path) for paths in at.values() for path in paths)
    takes = tuple(dict.fromkeys((*takes, *own)))
    return Tool(name=name, acts=(act,), synonyms=synonyms, inputs=at, takes=takes)


class RunContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user, tenant and labels of a run, fixed when it starts; rules read them in `when`. A field not given is
    absent; None means that there is none, and matches only `exists: false`.

    Attributes:
        user_role: The role of the run's user.
        tenant: The run's tenant.
        user: The run's user.
        provider: The adapter's name; the supervisor fills it in.
        model: The model, if known before launch.
        run_id: The run; the supervisor fills it in.
        session_id: The session; the supervisor fills it in.
        workspace: The absolute directory that relative paths start from.
        home: The absolute directory that `~` stands for.
        shell: The shell that reads command lines, by its name: `bash`.
        labels: Anything to filter runs by: `$.labels.env`.
        metadata: Anything else the caller knows: `$.metadata.team`.
    """

    user_role: str | msgspec.UnsetType | None = msgspec.UNSET
    tenant: str | msgspec.UnsetType | None = msgspec.UNSET
    user: str | msgspec.UnsetType | None = msgspec.UNSET
    provider: str | msgspec.UnsetType | None = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    session_id: str | msgspec.UnsetType | None = msgspec.UNSET
    workspace: str | msgspec.UnsetType | None = msgspec.UNSET
    home: str | msgspec.UnsetType | None = msgspec.UNSET
    shell: str | msgspec.UnsetType | None = msgspec.UNSET
    labels: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


WHOSE = ("user", "user_role", "tenant", "labels")
"""The fields of a context that say whose run it is."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter can do, so that proctor promises nothing else.

    Attributes:
        gate: The calls that wait for a decision: `all`, `some` or `none`.
        rewrite: The gate's answer can change a call's input.
        deny_ends_turn: A denied call ends the agent's turn.
        usage: When tokens are reported: `per_turn`, `at_end` or `none`.
        reports_cost: It reports USD.
        cancel_kills_children: After a cancel, no process that it started is alive.
        resume: It can resume its own earlier sessions.
        narrow: The model is offered only the tools that could be called now.
        compiles: The policy parts that become settings of the agent: `deny`, `allow`, `max_cost_usd`, ...
        tools: The agent's tools, with portable names and inputs, or names alone; None if unknown before launch.
        other_tools: There can be other tools, or fewer.
        mostly: What a tool with such a name usually does; used for calls of tools that are not among `tools`.
        elsewhere: Names, in lower case, of tools of other agents.
        model: The model; None if unknown before launch.
        workspace: The absolute directory it works in.
        home: Its home directory.
        shell: The shell that reads its command lines: `bash`; None if unknown.
    """

    gate: Literal["all", "some", "none"] = "none"
    rewrite: bool = False
    deny_ends_turn: bool = False
    usage: Literal["per_turn", "at_end", "none"] = "none"
    reports_cost: bool = False
    cancel_kills_children: bool = False
    resume: bool = False
    narrow: bool = False
    compiles: tuple[str, ...] = ()
    tools: Sequence[Tool | str] | None = None
    other_tools: bool = False
    mostly: tuple[Tool, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    model: str | None = None
    workspace: str | None = None
    home: str | None = None
    shell: str | None = None

    def __post_init__(self) -> None:
        for name in ("tools", "compiles"):
            if isinstance(given := getattr(self, name), str):
                raise ValueError(f"`{name}` is a list of names, not the text `{given[:80]}`")
            if isinstance(given, list):
                msgspec.structs.force_setattr(self, name, tuple(given))

    @property
    def table(self) -> tuple[Tool, ...]:
        """The tools that are known; empty where none is."""
        return tuple(each if isinstance(each, Tool) else Tool(name=each) for each in self.tools or ())

    @property
    def judged_by(self) -> tuple[Tool, ...]:
        """The tools that are known, and what others mostly are."""
        named = {each.name.casefold() for each in self.tools or () if isinstance(each, Tool)}
        return (*self.table, *(each for each in self.mostly if each.name.casefold() not in named))

    @property
    def offered(self) -> tuple[str, ...] | None:
        """The names of all tools that the agent offers, where they are known."""
        return None if self.tools is None or self.other_tools else tuple(each.name for each in self.table)


class Usage(msgspec.Struct, kw_only=True):
    """Tokens and USD used so far. Totals never go down.

    Attributes:
        input_tokens: Tokens of input, cached ones included.
        output_tokens: Output tokens, including reasoning.
        cache_read_tokens: Input tokens read from the cache.
        cache_write_tokens: Input tokens written to the cache.
        reasoning_tokens: Output tokens used for reasoning.
        subagent_tokens: Tokens that subagents used, if the agent reports them.
        cost_usd: USD.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    subagent_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens


FIGURES: Final[tuple[str, ...]] = Usage.__struct_fields__
"""The figures of a model's usage, in every usage report and every terminal event."""

TOKENS: Final = tuple(name for name in FIGURES if name != "cost_usd")
"""The figures in tokens."""
