"""The results of mutants, saved from run to run, and the survivors known to be equivalent."""

from collections import Counter
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

import msgspec
import yaml

from .areas import AREAS, ROOT
from .serving import Fate

RESULTS: Final = ROOT / ".mutants" / "results.jsonl"
EQUIVALENT: Final = Path(__file__).with_name("equivalent.yaml")
PAGE: Final = ROOT / "docs" / "mutants.md"
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->"


class Result(msgspec.Struct, frozen=True):
    """One mutant, by its name, its result, and the test that noticed it."""

    area: str
    mutant: str
    fate: Fate
    by: str = ""


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """The last result of each mutant, by name."""
    if not path.exists():
        return {}
    decoder = msgspec.json.Decoder(Result)
    return {result.mutant: result for result in map(decoder.decode, path.read_bytes().splitlines())}


def write_results(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Save these, sorted."""
    rows = sorted(results, key=lambda result: (list(AREAS).index(result.area), result.mutant))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def equivalent() -> dict[str, str]:
    """The survivors without a visible effect, by name, with the reason."""
    if not EQUIVALENT.exists():
        return {}
    found = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {each["mutant"]: each["because"] for each in found}


def table(results: Iterable[Result], same: Container[str]) -> str:
    """How many of each area were run, and their results; `same` are those known to be equivalent."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in AREAS}
    for result in results:
        fate = "equivalent" if result.fate == "survived" and result.mutant in same else result.fate
        counts[result.area][fate] += 1
    counts["all"] = sum(counts.values(), Counter())
    rows = ["| area | run | killed | hung | equivalent | survived | noticed |", "|---|---:|---:|---:|---:|---:|---:|"]
    for name, count in counts.items():
        cells = (count.total(), *(count[fate] for fate in ("killed", "hung", "equivalent", "survived")))
        noticed, all_that_can_be = count["killed"] + count["hung"], count.total() - count["equivalent"]
        share = f"{100 * noticed / all_that_can_be:.1f} %" if all_that_can_be else "-"
        rows.append(f"| {name} | {' | '.join(map(str, cells))} | {share} |")
    return "\n".join(rows) + "\n"


def page_with(page: str, results: Iterable[Result], same: Container[str], day: str) -> str:
    """The page with the table of these results, as of a day, in its place."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}As of {day}:\n\n{table(results, same)}{_END}{rest.split(_END)[1]}"
