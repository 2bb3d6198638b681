"""The real Claude Code with the proxy as its MCP server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from stored_rows import stored_rows

QUICK = Path(__file__).with_name("quick_server.py")
CODE = "from proctor.adapters.cli import main; main()"
pytestmark = pytest.mark.claude


def governed(claude: Any, tmp_path: Path, policy: str, **env: str) -> tuple[str, ...]:
    """The client's arguments for a server behind the proxy; the model is shown every tool from the start."""
    claude.env |= {"ENABLE_TOOL_SEARCH": "false", "MCP_CONNECTION_NONBLOCKING": "false"}
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    proxy = ["-c", CODE, "mcp", "--policy", str(file), "--store", str(tmp_path / "store.db"), "--server", "quick"]
    server = {"command": sys.executable, "args": [*proxy, "--", sys.executable, "-S", str(QUICK)], "env": env}
    config = json.dumps({"mcpServers": {"quick": server}})
    return ("--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__quick")


def test_claude_code_sees_and_calls_only_allowed_tools(claude: Any, tmp_path: Path) -> None:
    """A denied tool is not offered. Of parallel calls, only as many run as the limit allows."""
    api, store = claude.api, tmp_path / "store.db"
    arguments = governed(
        claude,
        tmp_path,
        "{name: p, on_violation: deny, limits: {max_tool_calls: {max: 2, action: deny}},"
        " tool_rules: [{deny: [mcp__quick__hang, mcp__quick__crash]},"
        " {deny: [{tool: mcp__quick__write, where: [{path: $.path, regex: never}]}], tell_model: keep out}]}",
    )
    never, done = tmp_path / "never", tmp_path / "done"
    refused = api.tool("mcp__quick__write", path=str(never))
    made = api.tool("mcp__quick__write", path=str(done))
    sums = [api.tool("mcp__quick__add", a=n, b=n) for n in range(3)]
    api.say(api.reply(refused), api.reply(made), api.reply(*sums), api.reply(api.text("done")))

    claude.run(*arguments)

    offered = {tool["name"] for tool in api.requests[0]["tools"]}
    results = claude.tool_results()
    rows = stored_rows(store, "SELECT type, count(*) FROM events GROUP BY type")
    assert "mcp__quick__write" in offered
    assert not {"mcp__quick__hang", "mcp__quick__crash"} & offered
    assert "keep out" in results[refused["id"]]
    assert not never.exists()
    assert done.exists()
    assert len([call for call in sums if "sum" in results[call["id"]]]) == 1
    assert dict(rows)["tool_call_started"] == 2
    assert dict(rows)["tool_call_denied"] == 3


def test_claude_code_reacts_to_a_changed_list_of_tools(claude: Any, tmp_path: Path) -> None:
    """Once a call has enabled another tool and exhausted itself, the client requests the list again."""
    api, log = claude.api, tmp_path / "asked"
    arguments = governed(
        claude,
        tmp_path,
        "{name: p, on_violation: deny, rules: [{type: before, first: mcp__quick__babble, then: mcp__quick__write},"
        " {type: count, tool: mcp__quick__babble, max: 1}]}",
        QUICK_LOG=str(log),
    )
    babble = api.tool("mcp__quick__babble")
    adds = [api.reply(api.tool("mcp__quick__add", a=n, b=n)) for n in range(2)]
    api.say(api.reply(babble), *adds, api.reply(api.text("done")))

    claude.run(*arguments)

    requests = log.read_text().split()
    offered = {tool["name"] for tool in api.requests[0]["tools"]}
    assert "mcp__quick__babble" in offered
    assert "mcp__quick__write" not in offered
    assert "tools/list" in requests[requests.index("tools/call") :]
