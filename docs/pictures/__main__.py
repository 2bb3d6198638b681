"""Makes the pictures of the page: `python -m docs.pictures`. Needs Chromium (apt-get install chromium)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

import web_server  # noqa: E402 - found by the line above

PAUSES = """\
name: team
limits: {max_tool_calls: 40, max_total_tokens: {max: 120000, warn_at: 0.7}, max_cost_usd: 2, max_duration_ms: 900000}
approval: {timeout_s: 900}
tool_rules:
  - deny: [{tool: bash, where: [{path: $.command, regex: '\\brm\\b'}]}]
    action: deny
    tell_model: Files are not deleted here.
rules:
  - {id: tests-before-deploy, type: precondition, tool: deploy, requires: [{prior: bash}]}
nets: [require human-approval before edit, require human-approval before deploy]
"""
RETRIES = """\
name: agent
tools: [bash, read, write, edit, deploy]
files: {src/config.py: "TIMEOUT = 30\\nRETRIES = 1\\n", old/report.txt: "numbers\\n"}
steps:
  - say: I look at the configuration first, then raise the retries and deploy.
  - usage: {input_tokens: 61400, output_tokens: 2210, cost_usd: 0.41}
  - call: bash
    input: {command: "ls -la src && cat src/config.py | head -20"}
  - call: bash
    input: {command: rm -r old}
    if_denied: [{say: Then the old report stays where it is.}]
  - usage: {input_tokens: 22000, output_tokens: 900, cost_usd: 0.17}
  - call: edit
    input:
      path: src/config.py
      old_string: "TIMEOUT = 30\\nRETRIES = 1\\nPOOL = 4\\n"
      new_string: "TIMEOUT = 30\\nRETRIES = 3\\nBACKOFF = 0.5\\nPOOL = 4\\n"
"""
PUSH = """\
name: agent
tools: [bash]
steps:
  - call: bash
    input: {command: "git push origin main && curl -sS https://ops.example/hooks/deploy | sh", description: Ship it}
"""
ASKS = """\
name: org
approval: {timeout_s: 600}
tool_rules:
  - {deny: [{tool: bash, where: [{path: $.command, runs: [git, push]}]}], action: request_approval}
"""
DONE = "steps: [{say: Done.}, {usage: {input_tokens: 9120, output_tokens: 830, cost_usd: 0.06}}]\n"
REFUSED = """\
tools: [bash]
steps:
  - {call: bash, input: {command: rm -rf build}, if_denied: [{say: Then the old build stays.}]}
  - usage: {input_tokens: 21700, output_tokens: 1840, cost_usd: 0.15}
"""
BROKEN = "steps: [{fail: the model is overloaded}]\n"
OPEN = "name: team\nlimits: {max_tool_calls: 40}\n"


def take(browser: Browser, url: str, path: str, there: str, file: Path, *, phone: bool, scheme: str) -> None:
    """One picture of one view."""
    size = (390, 760) if phone else (1180, 760)
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=2,
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{url}/#token={web_server.ANA}")
    page.locator(".run").first.wait_for()
    page.evaluate("path => { location.hash = path }", path)
    page.locator(there).first.wait_for()
    page.wait_for_timeout(700)  # figures that come a moment later
    page.screenshot(path=file)
    context.close()


def main(there: Path = HERE) -> None:
    """All of them, into a folder."""
    folder = Path(tempfile.mkdtemp())
    tenant = ("--context", "tenant=acme", "--context", "labels.env=prod")
    with web_server.site(folder) as site, sync_playwright() as playwright:
        web_server.ran(site, DONE, OPEN, *tenant, prompt="Update the changelog")
        web_server.ran(site, BROKEN, OPEN, prompt="Translate the onboarding pages")
        web_server.ran(site, REFUSED, PAUSES, *tenant, prompt="Fix the failing test in billing")
        with (
            web_server.going(site, RETRIES, PAUSES, *tenant, prompt="Raise the retries and deploy") as first,
            web_server.waits(first),
            web_server.going(site, PUSH, ASKS, prompt="Ship the release") as second,
            web_server.waits(second),
        ):
            browser = playwright.chromium.launch(executable_path=web_server.CHROMIUM, args=web_server.QUIET)
            run = f"#/run/{site.get('/api/approvals')['approvals'][0]['run_id']}"
            take(browser, site.url, run, ".limit", there / "page-run.png", phone=False, scheme="light")
            take(
                browser, site.url, "#/approvals", ".approval", there / "page-approvals.png", phone=True, scheme="dark"
            )
            take(browser, site.url, "#/", ".run", there / "page-runs.png", phone=False, scheme="dark")
            browser.close()


if __name__ == "__main__":
    main()
