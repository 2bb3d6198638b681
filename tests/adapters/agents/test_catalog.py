"""Adapters by name, and what importing one costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import proctor.adapters
from proctor.adapters.agents.catalog import ADAPTERS, AgentSpec, adapter_named
from proctor.adapters.agents.scripted.adapter import ScriptedAdapter
from proctor.adapters.stores import MemoryStore, PostgresStore, SQLiteStore
from proctor.policies import encode_event
from proctor.policies.events import RunStarted
from proctor.supervisor import Redaction, Supervisor
from proctor.supervisor.errors import ProviderUnavailableError, UsageError


def test_an_adapter_is_created_by_name_with_its_options() -> None:
    """The options are the adapter's own arguments."""
    adapter = adapter_named("scripted", script="steps:\n  - say: hi", gated=False)

    assert isinstance(adapter, ScriptedAdapter)
    assert adapter.capabilities.gate == "none"


@pytest.mark.parametrize(
    ("name", "message"), [("scriptd", "did you mean `scripted`?"), ("zzz", "there are `acp`"), ("", "no adapter is")]
)
def test_an_unknown_name_has_suggestions(name: str, message: str) -> None:
    """Near names, or else all of them."""
    with pytest.raises(UsageError) as caught:
        adapter_named(name)

    assert message in str(caught.value)


@pytest.mark.parametrize(("made", "given", "message"), [
    (proctor.adapters.ShellAdapter, {"cwd": 5}, "`cwd` is a value of type `int`, not a path"),
    (proctor.adapters.CodexAdapter, {"env": ["A"]}, "`env` is a value of type `list`, not a mapping"),
    (proctor.adapters.ClaudeAdapter, {"options": "opus"}, "`options` is a value of type `str`, not `ClaudeAgent"),
    (proctor.adapters.AcpAdapter, {"command": 5}, "command `5` is not a list of words"),
    (proctor.adapters.FallbackAdapter, {"adapters": 5}, "a list of at least two adapters"),
    (proctor.adapters.FallbackAdapter, {"adapters": ["amp", "codex"]}, "a value of type `str`, not an adapter"),
    (PostgresStore, {"url": None}, "`url` is None, not text"),
    (SQLiteStore, {"path": None}, "`path` is None, not a path"),
    (Supervisor, {"store": MemoryStore(), "redaction": {"off": True}}, "expected a `Redaction`, got a value"),
    (Supervisor, {"store": MemoryStore(), "redaction": Redaction(patterns=["a"])}, r"got a list at `\$.patterns`"),  # type: ignore[arg-type]
])  # fmt: skip
def test_an_adapter_created_from_a_wrong_object_names_the_argument(
    made: Any, given: dict[str, Any], message: str
) -> None:
    """With the expected type, instead of an internal error."""
    with pytest.raises(UsageError, match=message):
        made(**given)


@pytest.mark.parametrize(("name", "options", "message"), [
    ("shell", {"x": 1}, "adapter `shell` has no option `x`; it has `cwd`"),
    ("shell", {"timeout_s": "soon"}, "option `timeout_s` of adapter `shell` is a number, not `soon`"),
    ("shell", {"timeout_s": True}, "option `timeout_s` of adapter `shell` is a number, not `true`"),
    ("shell", {"cwd": 3}, "option `cwd` of adapter `shell` is text or a path, not `3`"),
    ("shell", {"env": ["A"]}, 'option `env` of adapter `shell` is a mapping to text, not `\\["A"\\]`'),
    ("shell", {"env": {"A": 1}}, 'option `env` of adapter `shell` is a mapping to text, not `{"A":1}`'),
    ("amp", {"settings": 5}, "option `settings` of adapter `amp` is a mapping, not `5`"),
    ("amp", {"arguments": [5]}, r"option `arguments` of adapter `amp` is a list of text, not `\[5\]`"),
    ("acp", {"name": 5}, "option `name` of adapter `acp` is text, not `5`"),
    ("shell", {"env": "\ud800"}, "option `env` of adapter `shell` is a mapping to text, not `\ud800`"),
    ("acp", {"mcp_servers": 5}, "option `mcp_servers` of adapter `acp` is a list of mappings, not `5`"),
    ("scripted", {"script": "x.yaml", "gated": "maybe"}, "is true or false, not `maybe`"),
    ("claude", {"model": ["a"]}, 'option `model` of adapter `claude` is text, not `\\["a"\\]`'),
    ("scripted", {}, "adapter `scripted` needs its option `script`; use `--set script=...`"),
])  # fmt: skip
def test_an_unknown_option_or_one_of_the_wrong_type_is_an_error(
    name: str, options: dict[str, Any], message: str
) -> None:
    """Before anything is created, without the names of Python's types."""
    with pytest.raises(UsageError, match=message):
        adapter_named(name, **options)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setitem(ADAPTERS, "gone", AgentSpec("gone", "gone", "no_such_module:X", "gone"))

    with pytest.raises(ProviderUnavailableError, match=r"pip install '\.\[gone\]'"):
        adapter_named("gone")


def test_the_listed_names_can_be_imported() -> None:
    """`__all__` is sorted and complete; an unknown name is an error when it is accessed."""
    names = proctor.adapters.__all__

    assert list(names) == sorted(names)
    for name in names:
        assert getattr(proctor.adapters, name).__name__ == name
    assert set(names) <= set(dir(proctor.adapters))
    with pytest.raises(AttributeError, match="NoSuchAdapter"):
        _ = proctor.adapters.NoSuchAdapter


OURS = {"ScriptedAdapter": "scripted.adapter", "ReplayAdapter": "replay", "ShellAdapter": "shell"}


@pytest.mark.parametrize("name", OURS)
def test_importing_one_adapter_imports_nothing_of_the_others(name: str) -> None:
    """Names are resolved on first use."""
    foreign = [f"proctor.adapters.agents.{module}" for other, module in OURS.items() if other != name]
    foreign += [] if name == "ShellAdapter" else ["proctor.policies.shell.parser"]
    foreign += ["psutil"] if name == "ReplayAdapter" else []
    program = (
        "import sys, proctor.adapters as a\n"
        "before = set(sys.modules)\n"
        f"a.{name}\n"
        f"found = [m for m in {foreign!r} if m in sys.modules]\n"
        "assert not any(m.startswith('proctor.adapters.') for m in before), before\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_agents_folder_has_its_spec_and_reading_all_of_them_imports_no_agent() -> None:
    program = (
        "import sys\n"
        "from proctor.adapters.agents.catalog import SPECS\n"
        "import pkgutil\n"
        "agents = sys.modules['proctor.adapters.agents'].__path__\n"
        "folders = {found.name for found in pkgutil.iter_modules(agents) if found.ispkg}\n"
        "named = {str(spec.adapter).partition('.')[0] for spec in SPECS}\n"
        "assert folders and folders <= named, folders - named\n"
        "assert len({spec.name for spec in SPECS}) == len(SPECS)\n"
        "heavy = {'claude_agent_sdk', 'agents', 'pydantic_ai', 'acp'}\n"
        "ours = {name for name in sys.modules if name.startswith('proctor.adapters.')}\n"
        "adapters = {name for name in ours if name.endswith('.adapter')}\n"
        "assert not heavy & sys.modules.keys() and not adapters, (heavy & sys.modules.keys(), adapters)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def _options(name: str, page: str) -> dict[str, Any]:
    """The options on a page's command lines."""
    text = (Path(__file__).parents[3] / "docs" / "agents" / f"{page}.md").read_text()
    lines = re.findall(rf"--adapter {name} [^\n`]*", text)
    return dict(re.findall(r"--set (\w+)=(\S+)", "\n".join(lines)))


AGENTS = {
    "pydantic-ai": "from pydantic_ai import Agent\nname = Agent('test')",
    "openai-agents": "from agents import Agent\nname = Agent(name='a')",
    "function": "async def name(gate): ...",
}
FRAMEWORKS = {"pydantic-ai": "pydantic_ai.exceptions", "openai-agents": "agents.exceptions"}
REST: dict[str, dict[str, Any]] = {"acp": {"command": ["opencode", "acp"]}, "replay": {"pace": "original"}}


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_is_created_by_name_with_the_options_of_its_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the documented commands do."""
    pytest.importorskip(FRAMEWORKS.get(name, "proctor"), reason=f"pip install '.[{name}]'")
    page = {"function": "loop", "replay": "scripted"}.get(name, name)
    options = {**_options(name, page), **REST.get(name, {})}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "module", raising=False)
    (tmp_path / "module.py").write_text(AGENTS.get(name, ""))
    if "script" in options:
        (tmp_path / options["script"]).write_text("steps:\n  - say: hi\n")
    if "recording" in options:
        started = RunStarted(run_id="r", session_id="s", seq=1, provider="scripted")
        (tmp_path / options["recording"]).write_bytes(encode_event(started))

    assert adapter_named(name, **options).capabilities is not None
    monkeypatch.delitem(sys.modules, "module", raising=False)


def test_an_option_that_an_adapter_passes_on_is_checked_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that the framework does not have is an error."""
    pytest.importorskip(FRAMEWORKS["pydantic-ai"], reason="pip install '.[pydantic-ai]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "module", raising=False)
    (tmp_path / "module.py").write_text(AGENTS["pydantic-ai"])

    with pytest.raises(UsageError, match="takes no `modl`"):
        adapter_named("pydantic-ai", agent="module:name", modl="x")
    with pytest.raises(UsageError, match="needs its option `agent`"):
        adapter_named("pydantic-ai")
    assert adapter_named("pydantic-ai", agent="module:name", model="test").name == "pydantic-ai"
    monkeypatch.delitem(sys.modules, "module", raising=False)
