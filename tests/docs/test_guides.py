"""The policies of the guides decide as the guides say: `guides/NAME.test.yaml` tests `docs/how-to/NAME.md`."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import ROOT, blocks, environment, run

TESTS = sorted((Path(__file__).parent / "guides").glob("*.test.yaml"))


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.name)
def test_the_policies_of_a_guide_decide_as_it_says(tests: Path, tmp_path: Path) -> None:
    """With its policies as they stand on the page."""
    folder = tmp_path / "tour"
    folder.mkdir()
    for block in blocks(ROOT / "docs" / "how-to" / f"{tests.name.removesuffix('.test.yaml')}.md"):
        if block.kind == "yaml" and block.file:
            folder.joinpath(block.file).write_text(block.text)
    folder.joinpath(tests.name).write_text(tests.read_text())

    assert run(f"proctor test {tests.name}", folder, environment(folder)).endswith(" passed\n")
