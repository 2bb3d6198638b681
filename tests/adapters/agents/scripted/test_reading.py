"""Loading scripts: every mistake is reported with its position, before anything runs."""

import gzip
from pathlib import Path

import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies import Deny, Limits, Policy
from proctor.supervisor import Adapter, ProviderUnavailableError, UsageError

HELLO = "steps:\n  - say: Hello.\n"


def test_its_capabilities_are_declared() -> None:
    """Gate, tools and model are known before launch; no policy clause becomes a setting."""
    adapter = ScriptedAdapter(HELLO, tools={"extra": str})
    policy = Policy(name="p", tool_rules=(Deny(("bash",)),), limits=Limits(max_cost_usd=1))

    assert isinstance(adapter, Adapter)
    assert adapter.capabilities.gate == "all"
    assert adapter.capabilities.offered == ("bash", "read", "write", "extra")
    assert adapter.capabilities.shell == "bash"
    assert ScriptedAdapter(HELLO, gated=False).capabilities.gate == "none"
    assert adapter.compile(policy).unexpressed == ("max_cost_usd", "deny bash")


@pytest.mark.anyio
async def test_a_missing_workspace_is_an_error_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="not a directory"):
        await ScriptedAdapter(HELLO, workspace=tmp_path / "gone").prepare()


@pytest.mark.parametrize(("text", "problem"), [
    ("steps:\n  - sey: hi", "script:2:5: unknown key `sey` at `steps[0].sey`; did you mean `say`?"),
    ("steps:\n  - say: hi\n    call: x", "script:2:5: `say` and `call` exclude each other at `steps[0]`"),
    ("steps:\n  - call: x\n    inptu: {}", "script:3:5: unknown key `inptu` at `steps[0].inptu`"),
    ("steps:\n  - call: x\n    inptu: {}", "did you mean `input`?"),
    ("steps:\n  - usage: {input_tokens: -1}", "2:27: must be at least 0, got -1 at `steps[0].usage.input_tokens`"),
    ("steps:\n  - usage: {input_tokens: true}", "expected a whole number, got `true`"),
    ("steps:\n  - silence: long", "expected a number or `forever`, got the text `long` at `steps[0].silence`"),
    ("steps:\n  - call: a\n    if_denied:\n      - x",
        "script:4:9: expected a mapping, got the text `x` at `steps[0].if_denied[0]`"),
    ("steps:\n  - parallel: [{say: x}]", "`call` is missing at `steps[0].parallel[0]`"),
    ("steps:\n  - parallel: []", "a list of calls; it has none at `steps[0].parallel`"),
    ("steps:\n  - say: a\n    say: b", "script:3:5: the key `say` is given twice"),
    ("steps:\n  - {call: a, id: x}\n  - {call: b, id: x}", "two calls have the id `x`"),
    ("steps:\n  - say: hi\nfiles: {../x: y}", "a file is given by its path within the workspace at `files.../x`"),
    ("steps:\n  - say: hi\nstep: 1", "unknown key `step` at `step`; did you mean `steps`?"),
    ("steps: []\nx: 1", "a list of one step or more"),
    ("- say: hi\n", "a script is a mapping with `steps`"),
    ("steps:\n  - [\n", "script:3:1: not YAML"),
    ("steps:\n  - !!python/object:os.system {}\n", "the tag `!!python/object:os.system` is not known"),
    ("\n", "script:1:1: the file is empty"),
])  # fmt: skip
def test_the_error_for_a_bad_script_says_where_and_what(text: str, problem: str) -> None:
    """Line, column and path of the step, and a suggestion for a misspelt key."""
    with pytest.raises(UsageError) as caught:
        ScriptedAdapter(text)

    assert problem in str(caught.value)


def test_invalid_arguments_are_an_error() -> None:
    """An object that is no script, functions without names, an invalid tool, an invalid time."""
    with pytest.raises(UsageError, match="not a value of type `NoneType`"):
        ScriptedAdapter(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="functions by name"):
        ScriptedAdapter(HELLO, tools=[print])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tool `x` is not a function"):
        ScriptedAdapter(HELLO, tools={"x": 1})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="command_timeout_s"):
        ScriptedAdapter(HELLO, command_timeout_s=0)


def test_every_problem_of_a_script_is_reported_at_once() -> None:
    """A line each."""
    with pytest.raises(UsageError) as caught:
        ScriptedAdapter("steps:\n  - sey: hi\n  - usage: {x: 1}\n  - {call: ''}")

    assert len(str(caught.value).splitlines()) == 3


def test_a_script_is_loaded_from_a_path_text_or_data(tmp_path: Path) -> None:
    """Each gives the same script, text of one line too. A problem in a file names the file."""
    path = tmp_path / "agent.yaml"
    path.write_text("steps:\n  - say: hi\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text("steps:\n  - say: 1\n")

    texts = (path.read_text(), "{steps: [{say: hi}]}")
    scripts = [ScriptedAdapter(s).script for s in (path, str(path), *texts, {"steps": [{"say": "hi"}]})]

    assert all(script == scripts[0] for script in scripts)
    with pytest.raises(UsageError, match=r"bad\.yaml:2:10: expected text, got the number 1 at `steps\[0\]\.say`"):
        ScriptedAdapter(bad)
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        ScriptedAdapter(tmp_path / "none.yaml")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(UsageError, match="not valid UTF-8"):
        ScriptedAdapter(tmp_path / "x.gz")
