"""The structure of the project: which folder may import which, what is public, what is shipped."""

import ast
import importlib
import importlib.util
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
ROWS = ("policies", "supervisor", "adapters")
"""Each folder may import those before it, and no other."""
PURE = {"msgspec", "yaml", "re2", "genai_prices", "ruamel"}
"""The imports of policies besides the standard library: computation only. The last two are loaded on use."""


@cache
def import_statements(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a source text, anywhere in it."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def imported(source: str, package: str) -> Iterator[str]:
    """The absolute names of the modules that a source text imports, anywhere in it."""
    for node in import_statements(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            yield f"{base}.{node.module}".rstrip(".") if node.level else str(node.module)


def against_the_arrow(source: str, folder: str, package: str) -> list[str]:
    """The imports of a file in `folder` that point to a later folder."""
    forbidden = tuple(f"proctor.{later}" for later in ROWS[ROWS.index(folder) + 1 :])
    return [
        name
        for name in imported(source, package)
        if forbidden and f"{name}.".startswith(tuple(f"{f}." for f in forbidden))
    ]


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def package_of(path: Path) -> str:
    return ".".join(("proctor", *path.relative_to(ROOT).parent.parts))


@pytest.mark.parametrize("folder", ROWS)
def test_no_file_imports_a_later_row(folder: str) -> None:
    """The only direction: adapters -> supervisor -> policies (CONTRIBUTING.md)."""
    found = {str(path): against_the_arrow(path.read_text(), folder, package_of(path)) for path in files(folder)}

    assert {path: names for path, names in found.items() if names} == {}


def rooms(folder: Path) -> list[str]:
    """The files and folders of a folder, except its `__init__`."""
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return sorted(path.stem for path in inside if path.stem != "__init__")


def listing(source: str) -> list[str]:
    """The `ROOMS` of an `__init__`, top first; empty if it has none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["ROOMS"]:
            return list(ast.literal_eval(node.value))
    return []


def upward(folder: str, listed: list[str], room: str, source: str, package: str) -> set[tuple[str, str, str]]:
    """The imports in a file that lead to a room listed above its own, anywhere in the file."""
    found = set()
    for name in names_imported(source, package):
        if name.startswith(f"proctor.{folder}."):
            other = name.removeprefix(f"proctor.{folder}.").split(".")[0]
            if other in listed and listed.index(other) < listed.index(room):
                found.add((folder, room, other))
    return found


def names_imported(source: str, package: str) -> Iterator[str]:
    """Like `imported`, with the names imported from a package (`from . import paths`) as its modules."""
    for node in import_statements(source):
        if isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            module = f"{base}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
            yield from (f"{module}.{alias.name}" for alias in node.names)
    yield from imported(source, package)


def folders() -> list[Path]:
    """Every folder of the packages with two rooms or more."""
    inits = (path for row in ROWS for path in files(row) if path.name == "__init__.py")
    return [path.parent for path in inits if len(rooms(path.parent)) > 1]


@pytest.mark.parametrize("folder", folders(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_lists_its_rooms(folder: Path) -> None:
    """`ROOMS` in a folder's `__init__` names each of its files and folders once."""
    assert sorted(listing((folder / "__init__.py").read_text())) == rooms(folder)


def test_imports_lead_down_the_listing() -> None:
    """Inside a folder, a room imports only rooms listed below it, so there is no cycle."""
    found: set[tuple[str, str, str]] = set()
    for folder in folders():
        listed = listing((folder / "__init__.py").read_text())
        name = ".".join(folder.relative_to(ROOT).parts)
        for path in folder.rglob("*.py"):
            room = path.relative_to(folder).parts[0].removesuffix(".py")
            if room in listed:
                found |= upward(name, listed, room, path.read_text(), package_of(path))

    assert found == set()


def test_policies_are_pure() -> None:
    """No third-party import in policies/ except for a few that are pure computation."""
    import sys

    foreign = {
        (str(path.relative_to(ROOT)), top)
        for path in files("policies")
        for name in imported(path.read_text(), package_of(path))
        if (top := name.split(".")[0]) not in sys.stdlib_module_names and top not in PURE | {"proctor"}
    }

    assert foreign == set()


@pytest.mark.parametrize(
    "module",
    ["proctor.policies", "proctor.supervisor", "proctor.adapters", "proctor.adapters.kit", "proctor.adapters.stores"],
)
def test_public_names_are_listed_sorted_and_exist(module: str) -> None:
    """Everything that a folder's `__init__` lists is public."""
    public = importlib.import_module(module)

    assert list(public.__all__) == sorted(public.__all__)
    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def package_itself() -> ModuleType:
    """What `import proctor` imports when installed; a source tree has only the three folders."""
    spec = importlib.util.spec_from_file_location("proctor_itself", ROOT / ".package" / "proctor" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_itself_has_a_version_and_the_names_of_the_first_page() -> None:
    """`import proctor` has the names that the README's program imports, the same objects as in their own packages."""
    proctor = package_itself()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    program = re.findall(r'```python title="supervise.py"\n(.*?)```', (ROOT / "README.md").read_text(), re.DOTALL)[0]
    used = [name for name in names_imported(program, "") if name.startswith("proctor.") and name.count(".") == 2]

    assert proctor.__version__ == project["project"]["version"]
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [".package/proctor"]
    assert proctor.__all__ == sorted(proctor.__all__)
    assert used
    for name in (*used, *(name for name in map(public_name, proctor.__all__) if name)):
        module, _, attribute = name.rpartition(".")
        assert getattr(proctor, attribute) is getattr(importlib.import_module(module), attribute)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = proctor.nothing_of_the_kind


def public_name(name: str) -> str:
    """The package of a name in `proctor` itself; "" for its version."""
    packages = (importlib.import_module(f"proctor.{row}") for row in ROWS)
    return next((f"{package.__name__}.{name}" for package in packages if name in package.__all__), "")


def test_every_package_is_shipped() -> None:
    """The built package has the three folders of the repository, by links: no file is listed."""
    package = ROOT / ".package" / "proctor"

    links = {path.name: path.resolve() for path in package.iterdir() if path.is_symlink()}

    assert links == {row: ROOT / row for row in ROWS}


def test_every_module_imports() -> None:
    """No module fails on import, and none needs an extra to be imported."""
    import proctor.policies as top

    found = [name for _, name, _ in pkgutil.walk_packages(top.__path__, "proctor.policies.")]

    assert [importlib.import_module(name).__name__ for name in found] == found


FOREIGN = {"adapter", "_adapter", "provider", "_provider", "step"}
"""User code, as the supervisor calls it."""
MEMBERS = {"name", "end_orphans", "capabilities", "compile", "prepare", "open", "events", "cancel_steps", "act"}
FUNCTIONS = {"publisher", "_publisher", "approver", "_approver", "validate", "on_result"}
IN_A_TASK = {"supervisor/run/provider_session.py": {"prepare", "open", "events", "act", "name"}}
"""Code that runs in its own task (`DetachedTask`), which catches everything at its root."""


def called_directly(source: str) -> set[str]:
    """The user code that a source text calls directly, without the wrapper."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in MEMBERS:
            of = node.value
            found |= {node.attr} if getattr(of, "id", getattr(of, "attr", "")) in FOREIGN else set()
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            found |= {name} if name in FUNCTIONS else set()
    return found


def test_foreign_code_is_called_only_through_the_wrapper() -> None:
    """`isolated` for synchronous code, `call_isolated` and `DetachedTask` for awaited code."""
    inside = (
        *("supervisor/run/provider_session.py", "supervisor/run/callbacks.py", "supervisor/run/tasks.py"),
        *("supervisor/testing/", "policies/reading/"),
    )
    found = {}
    for path in [*files("supervisor"), *files("policies")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(inside):
            found[name] = called_directly(path.read_text()) - IN_A_TASK.get(name, set())

    assert {name: calls for name, calls in found.items() if calls} == {}
