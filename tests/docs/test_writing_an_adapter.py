"""The adapter on the page works: it runs under a policy, and passes the shipped conformance suite."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "extend" / "adapter.md").read_text()
BLOCKS = re.findall(r'```python title="(\w+\.py)"\n(.*?)```', PAGE, re.DOTALL)
IMPATIENT = "import lines\nlines.LinesSession.close_s = lines.LinesSession.terminate_s = 0.2\n"
"""For the tests that cancel an agent that doesn't end when it is asked to."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page in their own folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in BLOCKS:
        (folder / name).write_text(text)
    return folder


@pytest.mark.anyio
async def test_the_adapter_of_the_page_runs_under_its_policy(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's statements about the run are true."""
    monkeypatch.syspath_prepend(str(project))
    for name in ("lines", "use"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    use = importlib.import_module("use")
    place = tmp_path / "work"
    place.mkdir()

    result = await use.supervised(place)

    assert (result.status, [path.name for path in place.iterdir()]) == ("completed", ["kept"])
    assert [violation.enforcement for violation in result.policy.violations] == ["prevented"]


def test_the_adapter_of_the_page_passes_the_suite(project: Path) -> None:
    """On both backends, as its author would run it, but without the seconds that an agent has to end."""
    (project / "conftest.py").write_text(IMPATIENT)
    apart = ["-c", "/dev/null", f"--rootdir={project}", f"--confcutdir={project}", "--import-mode=prepend"]
    needless = [f"-pno:{plugin}" for plugin in ("cacheprovider", "schemathesis", "langsmith_plugin")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *apart, *needless, "test_lines.py"],
        cwd=project, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "passed" in ran.stdout
