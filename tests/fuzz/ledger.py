"""The results of the long runs: a file that every run continues, and its table on a page."""

import os
from pathlib import Path
from typing import Final

import msgspec

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "long-runs.md"
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->"


class Share(msgspec.Struct, frozen=True):
    """The results of one share.

    Args:
        counts: how many of each thing were seen, named in the plural.
        found: the failures, each as text that reproduces it.
    """

    counts: dict[str, int]
    found: list[str] = []


class Result(msgspec.Struct):
    """The results of all shares of a run; the next share to run is number `shares` of `seed`."""

    seed: int
    shares: int = 0
    counts: dict[str, int] = {}
    found: list[str] = []

    def add(self, share: Share) -> None:
        """Add the next share."""
        self.shares += 1
        for name, count in share.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.found.extend(share.found)

    def __str__(self) -> str:
        seen = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return f"{seen}; {len(self.found)} found"


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """The results by the name of their run; empty without a file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Result]) if path.exists() else {}


def write_results(results: dict[str, Result], path: Path = RESULTS) -> None:
    """Save all of them, or none."""
    written = path.with_suffix(".new")
    written.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    os.replace(written, path)


def table(results: dict[str, Result]) -> str:
    """The results as rows of Markdown."""
    rows = ["| run | seed | seen | found |", "|---|---|---|---|"]
    for name, result in sorted(results.items()):
        seen = ", ".join(f"{count:,} {what}" for what, count in result.counts.items())
        rows.append(f"| `{name}` | {result.seed} | {seen} | {len(result.found) or '**none**'} |")
    return "\n".join(rows) + "\n"


def page_with(page: str, results: dict[str, Result]) -> str:
    """The page with the table of these results in its place."""
    before, rest = page.split(_BEGIN)
    after = rest.split(_END)[1]
    return f"{before}{_BEGIN}{table(results)}{_END}{after}"
