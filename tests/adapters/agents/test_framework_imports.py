"""The cost of importing a framework's adapter, and the error if the framework is missing."""

import subprocess
import sys

import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

OTHERS = (
    *("acp", "agents", "claude_agent_sdk", "codex_cli_bin", "langchain", "openai", "openai_codex", "pydantic_ai"),
    *("httpx", "mcp", "opentelemetry", "psycopg", "ray", "starlette", "uvicorn"),
)
IMPORTS = """
import sys, proctor, proctor.supervisor.api.supervisor
from proctor.adapters import (
    AcpAdapter, AmpAdapter, ClaudeAdapter, CodexAdapter, FunctionAdapter, OpenAIAgentsAdapter, PydanticAIAdapter,
    ReplayAdapter, ScriptedAdapter, ShellAdapter, supervise,
)
from proctor.adapters.stores import SQLiteStore
found = [name for name in sys.modules if name == "click"]
import proctor.adapters.cli.commands.run
ours = ("proctor.adapters.stores.postgres", "proctor.adapters.telemetry")
print(found + [name for name in sys.modules if name.startswith(ours) or name.split(".")[0] in sys.argv[1:]])
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_adapters_stores_and_the_command_line_imports_no_third_party_package() -> None:
    """No framework, client, driver or exporter is imported before it is used, and no other adapter."""
    assert run(IMPORTS, *OTHERS) == "[]"


@pytest.mark.parametrize(("adapter", "agent", "mine"), [
    ("PydanticAIAdapter", "from pydantic_ai import Agent; agent = Agent('test')", "pydantic_ai"),
    ("OpenAIAgentsAdapter", "from agents import Agent; agent = Agent(name='x')", "agents"),
])  # fmt: skip
def test_using_one_framework_imports_no_other(adapter: str, agent: str, mine: str) -> None:
    pytest.importorskip(f"{mine}.exceptions")  # a folder of tests is called `agents` too
    code = f"""
import sys
{agent}
import anyio
from proctor.adapters import {adapter}
adapter = {adapter}(agent)
adapter.capabilities
anyio.run(adapter.prepare)
others = {{"pydantic_ai", "agents", "langchain", "claude_agent_sdk"}} - {{{mine!r}}}
print([m for m in others if m in sys.modules])
"""

    assert run(code) == "[]"


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [("PydanticAIAdapter", "pydantic_ai", "pydantic-ai"), ("OpenAIAgentsAdapter", "agents", "openai-agents")],
)
def test_a_missing_framework_is_named_with_its_extra(adapter: str, package: str, extra: str) -> None:
    """By `prepare`. The adapter's capabilities are available anyway."""
    code = f"""
import sys
sys.modules[{package!r}] = None
import anyio
from types import SimpleNamespace
from proctor.adapters import {adapter}
from proctor.supervisor.errors import ProviderUnavailableError
from proctor.supervisor.testing.fakes import PATIENCE_S
adapter = {adapter}(SimpleNamespace(run=print, tools=[], handoffs=[], model=None))
print(adapter.name, adapter.capabilities.usage)
try:
    anyio.run(adapter.prepare)
except ProviderUnavailableError as error:
    print(error)
"""

    name, message = run(code).splitlines()
    assert name == f"{extra} per_turn"
    assert f"pip install '.[{extra}]'" in message
