"""Amounts in texts for people: the same amount always has the same form, and the singular is used for one."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.policies.limits import BUDGETS, LIMITS
from proctor.policies.values.amounts import amount_in, counted, dollars, figure_in, used_of

PRODUCT = Path(__file__).parents[3]
HERE = "policies/values/amounts.py"
AS_WRITTEN = {"policies/stack/locks.py": "a price, as the policy that is compared has it"}
"""Files that format USD themselves, with the reason."""


@pytest.mark.parametrize(("unit", "amount", "shown"), [
    *(("USD", 0.1, "$0.10"), ("USD", 1, "$1.00"), ("USD", 0, "$0.00"), ("USD", 1234.567, "$1,234.57")),
    *(("USD", 0.01, "$0.01"), ("USD", 0.0123, "$0.0123"), ("USD", 0.00041, "$0.00041"), ("USD", 4e-7, "$0.0000004")),
    *(("tokens", 1, "1 token"), ("tokens", 12_000, "12,000 tokens"), ("tool calls", 1, "1 tool call")),
    *(("runs at once", 1, "1 run at once"), ("runs at once", 2, "2 runs at once"), ("turns", 0, "0 turns")),
    *(("ms", 1, "1 ms"), ("ms idle", 20_000, "20,000 ms idle"), ("tokens", 0.5, "0.5 tokens")),
])  # fmt: skip
def test_an_amount_has_its_unit(unit: str, amount: float, shown: str) -> None:
    """Money has its sign, a count its noun, in the singular for one."""
    assert amount_in(unit, amount) == shown


@pytest.mark.parametrize("kind", [*LIMITS.values(), *BUDGETS.values()], ids=lambda kind: kind.name)
def test_every_kind_of_limit_formats_one_of_its_unit(kind: Any) -> None:
    """Money has one form, with its unit and without."""
    assert not re.search(r"\b1 \w*[^m\W]s\b", amount_in(kind.unit, 1))
    assert (amount_in(kind.unit, 0.1) == "$0.10") == (figure_in(kind.unit, 0.1) == "$0.10") == kind.is_money
    assert (used_of(kind.unit, 0.1, 1) == "$0.10 of $1.00") == kind.is_money


def test_a_plural_without_an_s_is_given() -> None:
    assert [counted(n, "call") for n in (0, 1, 2, 1234)] == ["0 calls", "1 call", "2 calls", "1,234 calls"]
    assert counted(2, "class of calls", "classes of calls") == "2 classes of calls"


def money_written_by(text: str) -> Iterator[int]:
    """The lines with a number after a dollar sign, or before USD."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for one, other in zip(node.values, node.values[1:], strict=False):
            signed = isinstance(one, ast.Constant) and str(one.value).endswith("$")
            named = isinstance(other, ast.Constant) and str(other.value).lstrip().startswith("USD")
            if signed or named:
                yield node.lineno


def test_one_file_formats_money_and_counts() -> None:
    """Of the product; the dashboard has the same function in JavaScript. `counted` writes a count with its noun,
    instead of adding an `s`.
    """
    texts = {
        str(path.relative_to(PRODUCT)): path.read_text()
        for folder in ("policies", "supervisor", "adapters")
        for path in (PRODUCT / folder).rglob("*.py")
    }
    money = {name for name, text in texts.items() if re.search(r"\$|USD", text) and any(money_written_by(text))}
    counting = {
        name for name, text in texts.items() if re.search(r"""(['"])s\1 (\* \(|if )|== 1 else (['"])s\3""", text)
    }
    pages = {path.name for path in (PRODUCT / "adapters" / "web" / "page").glob("*.js") if "`$$" in path.read_text()}

    assert money == {HERE, *AS_WRITTEN}
    assert counting == set()
    assert pages == {"format.js"}
    assert list(money_written_by('f"{x} USD"\nf"costs ${x}"\nf"{x} tokens"')) == [1, 2]


def test_the_dashboard_formats_money_alike() -> None:
    """In the browser's language."""
    amounts = [0, 0.1, 0.00041, 0.0123, 4e-7, 0.999, 1, 3.75, 1234.567]
    module = (PRODUCT / "adapters" / "web" / "page" / "format.js").as_uri()
    program = f"import {{ usd }} from {json.dumps(module)}; console.log(JSON.stringify({amounts}.map(usd)))"
    ran = subprocess.run(["node", "--input-type=module", "-e", program], capture_output=True, text=True, check=True)

    assert json.loads(ran.stdout) == [dollars(amount) for amount in amounts]


AGENT = """
name: agent
steps:
  - usage: {input_tokens: 1, cost_usd: 0.08}
  - call: lint
  - usage: {input_tokens: 1, cost_usd: 0.02}
  - call: lint
  - usage: {input_tokens: 1, cost_usd: 0.3}
"""
POLICY = """
name: p
limits: {max_cost_usd: {max: 0.1, warn_at: 0.9}}
budgets: [{name: b, max_cost_usd: 0.3, reserve: 0.1, window: month, warn_at: 0.9}]
"""


def test_every_terminal_output_formats_amounts_alike(cli: Any, place: Path) -> None:
    """The live view, the list, the timeline, the explanation, the dashboard, the shared budgets, the report."""
    place.joinpath("money.yaml").write_text(POLICY)
    place.joinpath("agent.yaml").write_text(AGENT)
    run = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "money.yaml", "--store", "m.db")
    ran = cli(*run, "go")
    shown = {
        words: cli(*words, "--store", "m.db").out
        for words in (("runs",), ("show", "last"), ("explain", "last"), ("budgets",), ("watch",))
    }
    texts = {("run",): ran.out + ran.err, **shown}
    written = {words: set(re.findall(r"\$[\d.]*\d|[\d.]+ USD", text)) for words, text in texts.items()}

    strange = {words: found - {*map(dollars, (0, 0.02, 0.08, 0.1, 0.3, 0.4))} for words, found in written.items()}

    assert ran.code == 1
    assert not any(strange.values()), strange
    assert all(written.values())
    assert "max_cost_usd: $0.10 of $0.10 used" in " ".join(texts["show", "last"].split())
    assert "$0.40; expected at most $0.10 in one run" in " ".join(texts["show", "last"].split())
    assert "p/b: $0.40 of $0.30 used" in " ".join(texts["show", "last"].split())
