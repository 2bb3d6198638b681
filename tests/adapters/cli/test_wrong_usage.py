"""Impossible usage is exit code 2 and one error on standard error, with the position and the remedy."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

CALL = {"type": "tool_call", "id": "c", "name": "read", "input": {}}
SESSION = json.dumps({"id": "s", "events": [CALL]}) + "\n"
FILES = {
    "one.jsonl": SESSION,
    "two.jsonl": SESSION * 2,
    "broken.jsonl": SESSION + '{"id": 7}\n',
    "silent.jsonl": json.dumps({"id": "s", "events": [{"type": "message", "role": "user", "content": "x"}]}),
    "empty.yaml": "",
    "org.test.yaml": "policies: [org.yaml]\ntests: [{name: a, calls: [{tool: read}]}]\n",
    "old.json": '{"name": "old"}',
}
ONCE = "standard input can be read only once; name files instead of `-`"
WRONG = {
    "chek": "there is no command `chek`; did you mean `check`?",
    "hook instal": "there is no command `instal`; ",
    "audit verfy": "there is no command `verfy`; ",
    "suggest two.jsonl -o a.yaml --tests a.yaml": "`--output` and `--tests` name one file; name two\n",
    "eval two.jsonl --policy org.yaml --junit ./a.xml --sarif a.xml": "`--junit` and `--sarif` name one file",
    "adapters x": "there is no command `x`; `proctor adapters --help` shows the usage",
    "schema x": "unexpected argument `x`; `proctor schema --help` shows the usage",
    "tail -n x": "`--lines N`: `x` is not a number",
    "tail -n -1": "`--lines N`: `-1` is less than 0",
    "explain last x": "`SEQ`: `x` is not a number",
    f"approvals --limit {'9' * 20}": f"`--limit N`: `{'9' * 20}` is not between 1 and 1000000",
    "approvals --watch -o kept.txt": "`--watch` has no end",
    "adapters -o kept.txt probe claude": "`-o` goes after `probe`",
    "runs --limit 0": "`--limit N`: `0` is not between 1 and 1000000",
    "runs --since yesterday": "`--since WHEN`: `yesterday` is not a time",
    "runs --label env": "`--label NAME=VALUE`: `env` is not NAME=VALUE",
    "runs --label a=1 --label a=2": "`--label a=...` is given twice",
    "runs --before nobody": "there is no run `nobody`",
    "prune": "`--older-than AGE` is missing",
    "prune --older-than 90": "`90` is not an age; write `90d`",
    "export --session nobody": "there is no session `nobody`",
    "import org.yaml": "error: org.yaml: line 1",
    "import org.yaml --store .": "error: `.` is a folder, not a store",
    "audit verify --store .": "`.` is a folder, not a store",
    "schema -o ring": "`ring` cannot be written: too many levels of symbolic links",
    "store --make --backup copy.db": "choose one of `--make` and `--backup FILE`",
    "kill --lift --run last": "`--lift` does not go with a run",
    "kill --lift --no-new-starts": "`--lift` does not go with a run or with `--no-new-starts`",
    "kill --lift --all --tenant a": "choose what to lift with one of",
    "init": "name the agent",
    "init --json": "name the agent",
    "init --agent amp --hook": "`--hook` is for",
    "hook settings --managed --agent codex --policy org.yaml": "Codex has no managed settings with hooks",
    "hook install --managed --agent codex --policy org.yaml": "Codex has no managed settings with hooks",
    "init --agent cluade": "`--agent`",
    "migrate none.yaml": "none.yaml: error: cannot read the file",
    "migrate --write -": "standard input cannot be written to",
    "migrate --write old.json": "is not a YAML file",
    "graph none.yaml": "none.yaml: error: cannot read the file",
    "graph org.yaml --trace none.jsonl": "none.jsonl: no such file",
    "graph org.yaml --trace two.jsonl": "`two.jsonl` holds 2 sessions; `--trace` takes a file with one",
    "prove org.yaml --tools a,mcp__*": "`--tools mcp__*` is a pattern: name each tool, or leave the option out",
    "eval one.jsonl": "`--policy FILE` is missing; `proctor eval --help` shows the usage",
    "serve --port 80": "there is no option `--port`; `proctor serve --help` shows the usage",
    "eval --polcy x": "there is no option `--polcy`; did you mean `--policy`?",
    "eval --policy org.yaml --format sesions one.jsonl": "no format of recorded sessions is called `sesions`",
    "eval --policy org.yaml --format x one.jsonl": "there are `events`, `sessions`, `claude`, `codex`, `otel`",
    "eval --policy org.yaml missing.jsonl": "missing.jsonl: no such file",
    "eval --policy org.yaml broken.jsonl": "broken.jsonl:2: ",
    "eval --policy org.yaml --junit no/out.xml one.jsonl": "`no/out.xml` cannot be written: there is no folder `no`",
    "test org.test.yaml --junit no/out": "`no/out` cannot be written: there is no folder `no`",
    "test org.test.yaml --sarif no/out": "`no/out` cannot be written: there is no folder `no`",
    "prove org.yaml --junit no/out": "`no/out` cannot be written: there is no folder `no`",
    "prove org.yaml --sarif no/out": "`no/out` cannot be written: there is no folder `no`",
    "eval --policy org.yaml --context x one.jsonl": "`--context x` is not KEY=VALUE",
    "suggest": "name the sessions",
    "suggest missing.jsonl": "missing.jsonl",
    "suggest silent.jsonl": "nothing to learn from",
    "suggest --store missing.db": "there is no store",
    "suggest one.jsonl --tests t.yaml": "goes with `--output",
    "suggest one.jsonl --base org.yaml --action request_approval": "a person could approve",
    "suggest one.jsonl --interactive": "`--interactive` asks on a terminal",
    "prove org.yaml --reach pay(amount=lots)": "a value is JSON",
    "prove org.yaml --reach pay(amount)": "an argument is `NAME=VALUE`",
    "prove org.yaml --reach 'pay(a=1 b=2)'": "separated by commas",
    "prove org.yaml --reach (x=1)": "it is a tool's name",
    "prove org.yaml --property missing.yaml": "missing.yaml",
    "prove org.yaml --tools ,": "names no tool",
    "prove org.yaml --adapter nobody": "the tools of `nobody` are not known",
    "prove org.yaml --write-test x.yaml": "only a question",
    "test empty.yaml": "a file of tests has `policies:` and `tests:`",
    "run --adapter shell ''": "`PROMPT` is given with an empty value; give it one\n",
    "run": "`PROMPT` is missing; `proctor run --help` shows the usage",
    "run --adapter opencode x": "no adapter is called `opencode`; use `--adapter acp` and, after the prompt",
    "run --adapter scriptd x": "no adapter is called `scriptd`; did you mean `scripted`?",
    "run --adapter scripted x": "adapter `scripted` needs its option `script`; use `--set script=...`",
    "run --adapter scripted --set scrpt=x x": "has no option `scrpt`; did you mean `script`?",
    f"run --adapter scripted --set scrpt={'[' * 9_999} x": "has no option `scrpt`",
    "run --adapter scripted --set script x": "`--set script` is not KEY=VALUE",
    "run --adapter scripted --set script=none.yaml --policy org.yaml x": "script `none.yaml` cannot be read",
    "run --adapter shell --set quiet=1 x": "no option `quiet`; it has `cwd`, `env`, `timeout_s`",
    "run --adapter shell --set cwd=a --set cwd=b x": "`--set cwd=...` is given twice",
    "run --adapter shell --policy org.yaml --context role=x x": "`--context role=...`: unknown name; use `user_role`",
    "serve --listen 127.0.0.1:0 --store nowhere.db": "there is no store at `nowhere.db`",
    "serve --listen 127.0.0.1:0 --store org.yaml": "org.yaml",
    "serve --listen 0.0.0.0:0": "add `--anywhere` to allow that",
    "serve --listen here": "is not an address",
    "serve --listen 127.0.0.1:65536": "is not an address; use HOST:PORT",
    "serve --listen 0.0.0.0:0 --anywhere": "needs `--tokens FILE`",
    "serve --origin ops.example": "is not an origin",
    "serve --origin https://ops.example/page": "is not an origin",
    "serve --origin https://[::1": "is not an origin",
    "serve --tokens nowhere.yaml": "`nowhere.yaml` cannot be read",
    "serve --proxy ops.example": "is not an address",
    "check - -": ONCE,
    "eval --policy - -": ONCE,
    "diff - org.yaml -": ONCE,
    "narrow --policy - --tools a -": ONCE,
    "graph - --trace -": ONCE,
    "explain - --policy -": ONCE,
    "run --adapter shell --policy - -": ONCE,
    "mcp --policy - -- true": ONCE,
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words[:60])
def test_it_is_one_message_and_nothing_is_done(words: str, cli: Any, place: Path) -> None:
    """Nothing is printed for programs, and no file is written."""
    for name, text in FILES.items():
        place.joinpath(name).write_text(text)
    place.joinpath("ring").symlink_to("ring")
    cli("store", "--make")
    cli("kill", "--lift")  # for a token, for which there is a file then
    before = sorted(place.rglob("*"))
    answer = cli(*shlex.split(words), stdin="name: x\n")

    assert (answer.code, answer.out, answer.err.count("error: ")) == (2, "", 1)
    assert WRONG[words] in answer.err
    assert sorted(place.rglob("*")) == before
