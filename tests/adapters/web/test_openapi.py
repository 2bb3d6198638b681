"""The HTTP API asked by a program that has read its OpenAPI document, and tries what that allows and what not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import web_server
from web_server import ANA

from proctor.adapters.web.server import OPERATIONS

pytest.importorskip("schemathesis", reason="pip install -e '.[dev]'")

POLICY = "{name: team, approval: {timeout_s: 3000}, nets: [require human-approval before write]}"
SCRIPT = "name: agent\ntools: [write]\nsteps:\n  - {call: write, input: {path: notes.txt, content: x}}\n"
ENDLESS = "/stream$|/changes$"
"""What ends only when it is left."""
RULED_OUT = "positive_data_acceptance"
"""The one check left out: what a document cannot say (one scope of several, a moment's form) is refused with 400."""


@pytest.mark.slow
def test_no_request_that_can_be_made_breaks_the_api_or_its_description(tmp_path: Path) -> None:
    """No error of the server; each answer has a status, a form and headers that are described; what the document
    rules out is refused; nothing is found without a token. The requests are the same each time.
    """
    command = [*(sys.executable, "-m", "schemathesis.cli", "run"), "--generation-deterministic"]
    command += ["--request-timeout", "120", "--phases", "coverage,fuzzing", "--max-examples", "3"]
    command += ["--exclude-path-regex", ENDLESS, "--exclude-checks", RULED_OUT, "--suppress-health-check", "all"]
    with web_server.site(tmp_path) as site, web_server.going(site, SCRIPT, POLICY):
        site.until("/api/approvals", lambda found: found["approvals"])
        command += [f"{site.url}/openapi.json", "--header", f"Authorization: Bearer {ANA}"]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=500)

        assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
        assert f"Tested: {sum(op.media == 'application/json' for op in OPERATIONS)}" in ended.stdout
        assert site.get("/api/me")["name"] == "ana"
