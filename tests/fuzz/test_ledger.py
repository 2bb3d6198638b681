"""The results of the long runs are added up, and the page about them is current."""

from tests.fuzz.ledger import PAGE, Result, page_with, read_results, table
from tests.fuzz.runs import RUNS
from tests.fuzz.suite import OF_CLIENTS, OF_KILLS, ROOT


def test_the_page_has_the_results() -> None:
    """`python -m tests.fuzz` writes them. The page names every run, what it compares, and the number of failures."""
    page = PAGE.read_text()
    rows = table({"a": Result(seed=1, counts={"lines": 1000}), "b": Result(seed=2, found=["x"])}).splitlines()[2:]

    assert page_with(page, read_results()) == page
    assert [name for name in RUNS if f"| `{name}` |" not in page.split("what it compares")[1]] == []
    assert rows == ["| `a` | 1 | 1,000 lines | **none** |", "| `b` | 2 |  | 1 |"]


def test_the_tests_that_long_runs_repeat_exist() -> None:
    """Otherwise a share of those runs would be an error of pytest."""
    for test in (*OF_KILLS, *OF_CLIENTS):
        file, name = test.split("::")

        assert f"def {name}(" in (ROOT / file).read_text()
