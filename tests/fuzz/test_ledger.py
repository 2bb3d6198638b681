"""The long runs add up, and the page about them says what they have shown."""

from pathlib import Path

from tests.fuzz.ledger import PAGE, Result, Share, page_with, read_results, table, write_results
from tests.fuzz.runs import RUNS


def test_a_run_continues_from_where_it_stopped(tmp_path: Path) -> None:
    """Shares add to what is on file, in their order."""
    kept = tmp_path / "results.json"
    result = Result(seed=3)
    result.add(Share({"lines": 10}))
    write_results({"commands": result}, kept)
    again = read_results(kept)["commands"]
    again.add(Share({"lines": 5, "hung": 1}, ["that"]))

    assert again == Result(seed=3, shares=2, counts={"lines": 15, "hung": 1}, found=["that"])


def test_the_page_has_the_results() -> None:
    """`python -m tests.fuzz` writes them; it names every run with what it compares, and what was found by number."""
    page = PAGE.read_text()
    rows = table({"a": Result(seed=1, counts={"lines": 1000}), "b": Result(seed=2, found=["x"])}).splitlines()[2:]

    assert page_with(page, read_results()) == page
    assert [name for name in RUNS if f"| `{name}` |" not in page.split("what it compares")[1]] == []
    assert rows == ["| `a` | 1 | 1,000 lines | **none** |", "| `b` | 2 |  | 1 |"]
