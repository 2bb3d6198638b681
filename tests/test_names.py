"""Rules for names: one class name for one thing, no empty words, functions that fit on a screen."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = ("policies", "supervisor", "adapters")
CHECKS = ("tests", "benchmarks")
TWINS = ("adapters/stores/postgres", "adapters/stores/sqlite", "adapters/stores/tables")
"""One name stands for the same thing in either database, and for what their common part requires of it."""
RETIRED = frozenset(
    ["asked", "holding", "known", "objections", "pump", "said", "surroundings", "terms", "told", "verdicts"]
)
"""Words that say how a value arrived, not what it is. It has a better name (`input`, `request`, `answer`)."""
PROMISED = {
    ("adapters/agents/acp/probe.py", "asked"): "a field of the report that `adapters probe --json` writes",
    ("adapters/cli/commands/agents.py", "asked"): "the same field, read",
}
"""Where a retired word remains, with the reason. The list only shrinks."""
PROSE = re.compile(
    r"""(\b[rR]?[fF][rR]?)?(?:(?s:"{3}(?:\\.|[^\\])*?"{3})|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#[^\n]*"""
)
"""Strings, with the `f` of those with code in braces, and comments."""
LINES = 60


def sources(*folders: str) -> dict[str, str]:
    """Every Python file of the folders, by its path in the repository."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@cache
def product() -> dict[str, ast.Module]:
    """The product's files."""
    return {path: ast.parse(source) for path, source in sources(*ROWS).items()}


def words(source: str) -> set[str]:
    """Every name that a source text defines or uses, without leading and trailing underscores."""
    code = PROSE.sub(_in_braces, source)
    return {word.strip("_") for word in re.findall(r"[^\W\d]\w*", code)}


def _in_braces(text: re.Match[str]) -> str:
    return PROSE.sub(" ", " ".join(re.findall("{([^{}]+)", text[0]))) if text[1] else " "


def shared(files: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The public class names with two meanings, and the files that define them; see `TWINS`."""
    defined: dict[str, list[str]] = defaultdict(list)
    for path, tree in files.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(path)
    return {name: paths for name, paths in defined.items() if len(paths) > 1 and not are_twins(paths)}


def are_twins(paths: list[str]) -> bool:
    """Whether these are the stores' own, one of each."""
    whose = [twin for path in paths for twin in TWINS if path.startswith(f"{twin}/")]
    return len(whose) == len(set(whose)) == len(paths)


def long_functions(files: dict[str, ast.Module]) -> set[str]:
    """The functions of more than `LINES` lines."""
    return {
        f"{path}:{node.name}"
        for path, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= LINES
    }


def test_a_class_name_stands_for_one_thing() -> None:
    """A class name means the same in every file."""
    assert shared(product()) == {}


def test_no_name_says_only_how_a_value_came() -> None:
    """A variable, parameter, attribute, function or module is named for what it holds or does, in tests too."""
    files = sources(*ROWS, *CHECKS)
    found = {(path, word) for path, source in files.items() for word in words(source) & RETIRED}
    modules = {path for path in files if RETIRED & set(path.removesuffix(".py").split("/"))}

    assert found == set(PROMISED)
    assert modules == set()


def test_a_function_fits_on_a_screen() -> None:
    """At most `LINES` lines with signature and docstring."""
    assert long_functions(product()) == set()


def misnamed(files: dict[str, ast.Module]) -> set[str]:
    """The entries under `Args:` of docstrings that are no parameter of their function."""
    found = set()
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                section = re.split(r"\n\n|\n\w+:\n", (ast.get_docstring(node) or "").partition("Args:\n")[2])[0]
                described = set(re.findall(r"^    (\w+): ", section, re.MULTILINE))
                found |= {f"{path}:{node.name}:{name}" for name in described - taken(node)}
    return found


def taken(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """The parameters of a function, or the fields of a class."""
    if isinstance(node, ast.ClassDef):
        makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        fields = {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
        return fields.union(*map(taken, makers))
    return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def test_docstrings_describe_parameters_by_their_names() -> None:
    """A renamed parameter is renamed in its description."""
    assert misnamed(product()) == set()
