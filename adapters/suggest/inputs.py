"""Inputs to restrictions: what the values of one input in many sessions have in common (values, amounts, folders,
hosts, a source), and the narrowest entry that admits one call and similar ones.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from proctor.policies import ToolCall
from proctor.policies.events.run_context import PORTABLE, Tool
from proctor.policies.language.conditions import SHELLS_OWN
from proctor.policies.language.facts import ToolTable
from proctor.policies.language.shell_commands import commands_of
from proctor.policies.shell.program_options import KNOWN
from proctor.policies.shell.words import DYNAMIC, split
from proctor.policies.values.amounts import counted
from proctor.policies.values.json_values import is_number, number_of, text_of
from proctor.policies.values.paths import place_of
from proctor.supervisor.machine.pending_approvals import is_like

from .entries import SUPPORT, Entry, beyond_headroom, likely, listed, supported, with_headroom
from .observed import HOST, LINK, ObservedCall, Supplier, host_of, is_address, links_in

_MOST_VALUES = 25
"""More values than this are not listed."""
_MOST_SOURCES = 4
_MOST_SHOWN = 4
LARGEST = 2**53
"""Larger numbers are not written: not every reader of a policy has them exactly."""
_RECURS = 2
"""A value without a known source is listed if this many sessions have it, or just one if that would disturb."""
_PROSE = 60
"""A text as long as this may have links in it."""
_IDENTITY = re.compile(r"(?i)(?:^|_|\.)ids?(?:\[\*\])?$")


class Use(NamedTuple):
    """One call of the tool in a session that gave the input."""

    session: str
    call: ObservedCall
    values: tuple[Any, ...]
    workspace: str | None


class UsedInput(NamedTuple):
    """One input of a tool in many sessions.

    Attributes:
        uses: The calls with a value there.
        others: The conditions of calls without a value there, which stay allowed.
    """

    tool: str
    path: str
    uses: Sequence[Use]
    others: Sequence[dict[str, Any]] = ()

    @property
    def values(self) -> list[Any]:
        """The values of all calls."""
        return [value for use in self.uses for value in use.values]

    @property
    def roles(self) -> Counter[str]:
        """How many calls have it in each role."""
        return Counter(role for use in self.uses if (role := use.call.roles.get(self.path)))

    def by_session(self, values_of: Callable[[Use], set[Any]]) -> dict[str, set[Any]]:
        """What is read from the calls of each session."""
        found: defaultdict[str, set[Any]] = defaultdict(set)
        for use in self.uses:
            found[use.session] |= values_of(use)
        return dict(found)

    def restricted(self, part: dict[str, Any], about: str, disturbed: frozenset[str], *, stops: Any) -> Entry:
        """A restriction of it, which stops a call with the value `stops`."""
        return Entry(
            kind="input",
            about=about,
            tool=self.tool,
            sessions=len({use.session for use in self.uses}),
            calls=len(self.uses),
            part=part,
            disturbed=disturbed,
            stops={"tool": self.tool, "path": self.path, "value": stops},
        )

    def where(self, where: Sequence[dict[str, Any]], about: str, disturbed: frozenset[str], *, stops: Any) -> Entry:
        """A restriction to what meets one of these conditions, or has no value there."""
        alternatives = [*self.others, *where]
        part = alternatives[0] if len(alternatives) == 1 else {"any_of": alternatives}
        return self.restricted(part, about, disturbed, stops=stops)


def input_entries(input: UsedInput) -> list[Entry]:
    """The restrictions of an input, the strictest that future sessions are likely to keep; none for free text."""
    roles = input.roles
    role = roles.most_common(1)[0][0] if roles else ""
    if role == "command":
        return _commands(input)
    if role in ("path", "to"):
        return _folders(input)
    if role == "url" or all(map(is_address, input.values)):
        return _sourced(input, lambda text: [host_of(text)], extract=HOST, always=role == "url")
    texts = {value for value in input.values if isinstance(value, str)}
    from_somewhere = _sourced(input, lambda text: [text]) if texts else []
    if from_somewhere and len(from_somewhere[0].part.get("except", ())) < len(texts):
        return from_somewhere
    found = _amount(input) or _values(input)
    if found:
        return [found]
    prose = any(len(text) >= _PROSE for text in texts)
    return _sourced(input, links_in, extract=LINK) if prose else []


def _lone(values: Mapping[str, set[Any]], fewest: int = 1) -> frozenset[str]:
    """The sessions with a value that too few of the others have."""
    count = supported(values)
    return frozenset(session for session, found in values.items() if any(count[v] <= fewest for v in found))


def _commands(input: UsedInput) -> list[Entry]:
    """An entry for each command that a `runs` names."""
    lines = input.by_session(lambda use: {text for text in use.values if isinstance(text, str)})
    named = generalised(lines)
    count = supported(named)
    calls = Counter(name for line in input.values for name in _named(line, count))
    alone = defaultdict(set)
    for session, names in named.items():
        for name in names:
            if count[name] == 1:
                alone[name].add(session)
    return [
        Entry(
            kind="command",
            about=f"`{name}`",
            tool=input.tool,
            sessions=count[name],
            calls=calls[name],
            part={"path": input.path, "runs": name},
            disturbed=frozenset(alone[name]),
        )
        for name in sorted(count)
    ]


def _named(line: Any, entries: Container[str]) -> set[str]:
    """The entries that a line needs, each for a command or its program."""
    names = (names_in(line) or ()) if isinstance(line, str) else ()
    return {name if name in entries else program_of(name) for name in names}


def _folders(input: UsedInput) -> list[Entry]:
    """The deepest folders that several sessions use; for other paths, their own folder or name; what is no text."""
    path = input.path
    no_texts = {text_of(value): value for value in input.values if not isinstance(value, str)}
    if not all(map(is_writable, no_texts.values())):
        return []
    used = input.by_session(_folders_in)
    folders = _outermost_shared(used, [found for use in input.uses if len(found := _folders_in(use)) > 1])
    covers = {
        session: {next(above for above in _above(folder)[::-1] if above in folders) for folder in found}
        for session, found in used.items()
    }
    where: list[Any] = [{"path": path, "within": folder} for folder in listed(folders) if place_of(folder)]
    exact = [*(folder for folder in listed(folders) if not place_of(folder)), *no_texts.values()]
    where += [{"path": path, "in": exact}] if exact else []
    about = f"`{path}` in {', '.join(f'`{folder}`' for folder in [*listed(folders), *no_texts])}"
    return [input.where(where, about, _lone(covers), stops="/somewhere/else")]


def _folders_in(use: Use) -> set[str]:
    """The folders of a call's paths, or what stands there if they have none."""
    return {folder_of(value, use.workspace) or value for value in use.values if isinstance(value, str)}


def _outermost_shared(used: Mapping[str, set[str]], together: Iterable[set[str]]) -> set[str]:
    """The deepest folders, none within another, that cover those of each session, and those that one call has
    `together` with one folder.
    """
    count: Counter[str] = Counter()
    for found in used.values():
        count.update({above for folder in found for above in _above(folder)})
    chosen = {
        next((above for above in _above(folder) if count[above] >= SUPPORT), folder)
        for found in used.values()
        for folder in found
    }
    chosen |= {
        _common(found)
        for found in together
        if not any(all(folder in _above(each) for each in found) for folder in chosen)
    }
    return {folder for folder in chosen if not chosen & set(_above(folder)[1:])}


def folder_of(value: Any, workspace: str | None) -> str | None:
    """The folder of a path as text, relative to the workspace if inside it; None if unknown."""
    place = place_of(value, workspace) if isinstance(value, str) else None
    base = place_of(workspace) if workspace else None
    if place is None or place.up:
        return None
    down = place.down[:-1]
    if base is not None and place.start == "/" and place.down[: len(base.down)] == base.down:
        return "/".join((".", *place.down[len(base.down) : -1]))
    if place.start == "/":
        return "/" + "/".join(down) if down else str(value)
    return "/".join((place.start, *down))


def _above(folder: str) -> list[str]:
    """A folder and those it is in, the deepest first; never the root, and never the home directory."""
    start, *down = folder.split("/")
    if start not in ("", ".", "~"):
        return [folder]
    lowest = 0 if start == "." else 1
    return ["/".join((start, *down[:n])) for n in range(len(down), lowest - 1, -1)] or [folder]


def _common(folders: set[str]) -> str:
    """The deepest folder that all of these are in; the workspace if there is none."""
    first, *others = folders
    return next((above for above in _above(first) if all(above in _above(other) for other in others)), ".")


def _amount(input: UsedInput) -> Entry | None:
    """An upper bound with headroom, and a lower bound of 0 if no amount was negative."""
    numbers = [number_of(value, True) for value in input.values]
    amounts = [number for number in numbers if number is not None and is_number(number)]
    if (
        len(amounts) < len(numbers)
        or not amounts
        or _IDENTITY.search(input.path)
        or all(isinstance(value, str) for value in input.values)
    ):
        return None
    if min(amounts) < 0 or max(amounts) > LARGEST or len({*amounts}) == 1:
        return None
    read = input.by_session(lambda use: {number_of(value, True) or 0 for value in use.values})
    most = {session: max(found) for session, found in read.items()}
    disturbed = beyond_headroom(most)
    if not likely(len(disturbed), len(most)):
        return None
    bound = with_headroom([*most.values()])
    about = f"`{input.path}` up to {bound:,.15g}; the largest was {max(amounts):,.15g}"
    if disturbed:
        usual = with_headroom([amount for session, amount in most.items() if session not in disturbed])
        about = f"`{input.path}` up to {bound:,.15g}, which one session alone asks for; without it, {usual:,.15g}"
        input = input._replace(uses=[use for use in input.uses if use.session in disturbed])
    return input.where([{"path": input.path, "gte": 0, "lte": bound}], about, disturbed, stops=bound + 1)


def _values(input: UsedInput) -> Entry | None:
    """A list of values, if they recur."""
    values = input.by_session(lambda use: set(map(_alike, use.values)))
    by_text = {_alike(value): value for value in input.values}
    disturbed = _lone(values)
    if (
        not all(map(is_writable, by_text.values()))
        or len(by_text) > _MOST_VALUES
        or not likely(len(disturbed), len(values))
    ):
        return None
    where = [{"path": input.path, "in": [by_text[text] for text in sorted(by_text)]}]
    about = f"`{input.path}`: {counted(len(by_text), 'value')}"
    stops: Any = "something-else" if any(isinstance(v, str) for v in by_text.values()) else -1
    return input.where(where, about, disturbed, stops=stops)


def _alike(value: Any) -> tuple[str, bool]:
    """The same for values that a condition on an input does not tell apart: 7 and its text, but not true and its."""
    return text_of(value), value is None or isinstance(value, bool)


def is_writable(value: Any) -> bool:
    """Whether a file can have a scalar."""
    return not is_number(value) or abs(value) <= LARGEST


def _sourced(
    input: UsedInput, read: Callable[[str], list[str]], *, extract: str | None = None, always: bool = False
) -> list[Entry]:
    """Restrictions by source: users' texts, tools' outputs, or recurring values without either; `read` finds what is
    followed in the text of a value.
    """
    open: dict[str, set[tuple[str, frozenset[Supplier]]]] = input.by_session(
        lambda use: {
            (text, use.call.supplied.get(text, frozenset()))
            for value in use.values
            for text in read(text_of(value))
            if text and not use.call.user.contain(text)
        }
    )
    sources = _sources(open)
    left = {
        session: {text for text, suppliers in found if not suppliers & {*sources}} for session, found in open.items()
    }
    for fewest in (_RECURS, 1):
        recurring = {text for text, count in supported(left).items() if count >= fewest}
        disturbed = _lone(left, fewest)
        if likely(len(disturbed), len(left)) and len(recurring) <= _MOST_VALUES:
            break
    else:
        if not always:
            return []
    rule = {
        "id": f"{input.path.strip('$.[]*').replace('[', '-')}-of-{input.tool}",
        "type": "provenance",
        "tool": input.tool,
        "path": input.path,
        **({"extract": extract} if extract else {}),
        "from": ["user_message", *({"tool": by, "path": at} for by, at in sorted(sources))],
        **({"except": sorted(recurring)} if recurring else {}),
    }
    what = {HOST: "host of ", LINK: "links in "}.get(extract or "", "")
    about = f"{what}`{input.path}` from {_origin(sources, recurring)}{_unlisted(left, recurring)}"
    stops = "https://example.net/else" if extract else "somebody-else"
    return [input.restricted(rule, about, disturbed, stops=stops)]


def _origin(sources: Sequence[Supplier], recurring: set[str]) -> str:
    tools = [f"`{by}`" for by in sorted({by for by, _ in sources})]
    values = [counted(len(recurring), "recurring value")] if recurring else []
    return ", ".join(["the user", *tools, *values])


def _unlisted(left: Mapping[str, set[str]], recurring: set[str]) -> str:
    """The values that one session alone has, in words."""
    alone = listed({text for found in left.values() for text in found} - recurring)
    shown = [_short(text) for text in alone[:_MOST_SHOWN]]
    more = [f"{len(alone) - len(shown):,} more"] if len(alone) > len(shown) else []
    return f"; put into `except` what you allow of {', '.join([*shown, *more])}" if alone else ""


def _sources(open: Mapping[str, set[tuple[str, frozenset[Supplier]]]]) -> list[Supplier]:
    """The outputs that supply most values that users did not write, each in several sessions."""
    left = {session: {*found} for session, found in open.items()}
    chosen: list[Supplier] = []
    while len(chosen) < _MOST_SOURCES:
        count = supported({s: {by for _, suppliers in found for by in suppliers} for s, found in left.items()})
        best = max(listed(count), key=lambda by: count[by], default=None)
        if best is None or count[best] < SUPPORT:
            break
        chosen.append(best)
        left = {s: {(t, by) for t, by in found if best not in by} for s, found in left.items()}
    return chosen


_SUBCOMMANDS = split("""
    apt apt-get brew bundle cargo conda docker dotnet gh git go gradle helm kubectl mvn npm pip pip3 pnpm poetry
    systemctl terraform uv yarn make
""")
"""Programs whose first words are subcommands."""
_INTERPRETERS = split("bash deno node perl php python python2 python3 ruby sh tsx zsh")
_BY_WORDS = split("""
    chgrp chmod chown curl curlie dd eval exec http https kill killall nc ncat pkill rm rmdir rsync scp shred source
    ssh su sudo truncate wget
""")
"""Programs whose arguments name what is destroyed or sent, so that they are listed with all of them."""
_GIT_GLOBAL = ("-C", "-c", "--git-dir", "--work-tree")
_CODE = ("-c", "-e", "-m")
_MANY = 5
"""This many forms of a program, in as many sessions, are listed as the program alone."""


@lru_cache(maxsize=65_536)
def names_in(line: str) -> tuple[str, ...] | None:
    """The commands that a `runs` would have to list to admit the line; None if nothing would admit it."""
    found: list[str] = []
    for given, among_words in commands_of(line):
        if among_words:
            continue
        name = _named_in(given)
        if name is None:
            return None
        found.append(name)
    return tuple(dict.fromkeys(found)) or None


def program_of(name: str) -> str:
    """The program that a named command runs, `dynamic` before it."""
    words = name.split()
    return " ".join(words[:2]) if words[0] == DYNAMIC else words[0]


def generalised(lines: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The named commands of each session, those of a program with many forms as the program alone.

    A program whose arguments matter stays named with them.
    """
    named = {session: {name for line in found for name in names_in(line) or ()} for session, found in lines.items()}
    count = supported(named)
    forms: defaultdict[str, set[str]] = defaultdict(set)
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for session, names in named.items():
        for name in names:
            forms[program_of(name)].add(name)
            sessions[program_of(name)].add(session)
    whole = {
        program
        for program, names in forms.items()
        if program not in _BY_WORDS
        and min(len(names), len(sessions[program])) >= _MANY
        and 2 * sum(count[name] < SUPPORT for name in names) > len(names)
    }
    return {
        session: {program if (program := program_of(name)) in whole else name for name in names}
        for session, names in named.items()
    }


def _named_in(given: Sequence[str | None]) -> str | None:
    """The name of a command for `runs`; None if that needs its words and they are unknown."""
    name = given[0] or DYNAMIC
    if name == DYNAMIC and len(given) == 1:
        return None
    words = (name, *given[1:])
    kept = words[: _kept(words)]
    plain = [word for word in kept if word is not None and _is_plain(word)]
    if plain == list(kept):
        return " ".join(plain)
    return None if name in _BY_WORDS or name in _SUBCOMMANDS or name in _INTERPRETERS or name == DYNAMIC else name


def _kept(words: Sequence[str | None]) -> int:
    """How many of its words are in a command's name."""
    name = words[0] or ""
    if name == DYNAMIC:
        return 3 if (words[2:3] or [""])[0] in _CODE else 2
    if name in _BY_WORDS:
        return len(words)
    if name in _SUBCOMMANDS:
        return _subcommand(words)
    if name in _INTERPRETERS:
        return 3 if words[1:2] == ["-m"] else 2
    return 1 if name in KNOWN or name in ("sed", "awk", "find", "xargs", "env", "timeout", "redirect") else 2


def _subcommand(words: Sequence[str | None]) -> int:
    at = 1
    while at < len(words) and (words[at] or "").startswith("-"):
        at += 2 if words[at] in _GIT_GLOBAL else 1
    return at + 1


def _is_plain(word: str) -> bool:
    """Whether a `runs` can have the word: no blank, and nothing that is the shell's own."""
    return not set(word) & (SHELLS_OWN | {" ", "\t"})


_FREE = frozenset(("description", "timeout", "timeout_ms"))
"""Inputs that do not change what a call does."""
_WRITES = frozenset(("write", "edit"))
_KEPT_IN_PART = ("command", "path", "to")
"""The roles of inputs of which similar calls have a part: the programs, or the folder."""


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """Calls similar to a call: the `entry` of an allow list that admits them, and the same in words."""

    entry: dict[str, Any]
    about: str


def like_of(call: ToolCall, tools: Iterable[Tool]) -> Like | None:
    """The narrowest entry that admits a call of a client with these tools and similar calls; None without one.

    The entry keeps a command line's programs with their subcommands, a path's folder, and nothing of written content;
    any other input keeps its value.
    """
    act, roles = _roles(ToolTable(tools), call)
    writes = act in _WRITES and any(roles.get(f"$.{key}") == "path" for key in call.input)
    where: list[dict[str, Any]] = []
    words: list[str] = []
    for key, value in call.input.items():
        if not key.isidentifier():
            return None
        role = roles.get(f"$.{key}", "")
        is_content = writes and not isinstance(value, bool | int | float)
        if role not in _KEPT_IN_PART and (key in _FREE or is_content):
            continue
        found = _like_input(key, value, role)
        if found is None:
            return None
        condition, shown = found
        where.append(condition)
        words.append(shown)
    entry = {"tool": call.name, **({"where": where} if where else {})}
    if not is_like(call, entry, call.input):  # not all of it can be read
        return None
    return Like(entry=entry, about=" ".join((f"`{call.name}`", *words)))


def _like_input(key: str, value: Any, role: str) -> tuple[dict[str, Any], str] | None:
    """The condition that keeps one input, and its words; None for a command line that cannot be read."""
    path = f"$.{key}"
    if role == "command":
        names = names_in(value) if isinstance(value, str) else None
        return (
            None if names is None else ({"path": path, "runs": list(names)}, ", ".join(f"`{name}`" for name in names))
        )
    if role in _KEPT_IN_PART:
        folder = folder_of(value, None)
        if folder is not None and place_of(folder) is not None:
            return {"path": path, "within": folder}, f"in `{folder}`"
        return {"path": path, "equals": value}, f"`{value}`"
    return {"path": path, "equals": value}, f"{key} {_short(value)}"


def _roles(table: ToolTable, call: ToolCall) -> tuple[str, dict[str, str]]:
    """The single act of a call, and its portable inputs by path."""
    described = table.tools.get(call.name.casefold())
    acts = (call.name,) if described is None else described.every_act
    if len(acts) != 1 or (act := next(iter(acts))) not in PORTABLE:
        return "", {}
    own = {} if described is None else described.inputs
    paths = {name: own.get(name, (f"$.{name}",)) for name in PORTABLE[act]}
    return act, {path: name for name, several in paths.items() for path in several}


def _short(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"
