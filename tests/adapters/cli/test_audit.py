"""`audit head` and `audit verify`: their output and their exit codes."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def store(ran: Any, place: Path) -> Path:
    assert ran.code == 1  # a call was denied
    return place / "state" / "proctor" / "runs.db"


def test_an_untouched_store_passes(cli: Any, store: Path) -> None:
    """For people and for programs, with the checkpoint to keep."""
    assert store.exists()
    answer = cli("audit", "verify")
    assert answer.code == 0
    assert "integrity: no record was changed" in answer.out
    assert "completeness: nothing is missing" in answer.out
    [report] = cli("audit", "verify", "--json").lines
    assert (report["intact"], report["complete"], report["findings"]) == (True, True, [])
    [heads] = cli("audit", "head").lines
    assert heads["type"] == "proctor_heads"
    assert heads["sessions"] == report["heads"]["sessions"]


def test_a_truncated_store_is_compared_with_a_checkpoint(cli: Any, store: Path, place: Path) -> None:
    """The exit code is 1, the finding names the session and the event, and no new checkpoint is printed. The
    checkpoint may have a byte order mark from an editor.
    """
    place.joinpath("heads.json").write_text("\ufeff" + cli("audit", "head").out)
    assert cli("audit", "verify", "--anchor", "heads.json").code == 0
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM events WHERE seq > 5")
        connection.commit()
    answer = cli("audit", "verify", "--anchor", "heads.json")
    assert answer.code == 1
    assert "cut_off: session" in answer.out
    assert "completeness: NOT COMPLETE" in answer.out
    assert "integrity: no record was changed" in answer.out
    [report] = cli("audit", "verify", "--json", "--anchor", "heads.json").lines
    assert {finding["about"] for finding in report["findings"]} == {"completeness"}
    rejected = cli("audit", "head")
    assert (rejected.code, "proctor_heads" in rejected.out) == (1, False)


@pytest.mark.usefixtures("store")
def test_a_checkpoint_is_signed_and_its_signature_verified(cli: Any, place: Path) -> None:
    """With openssl's keys. A missing or wrong signature is bad input."""
    for name in ("key", "other"):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem"], check=True)
        subprocess.run(["openssl", "pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub"], check=True)
    assert cli("audit", "head", "--sign", "key.pem", "-o", "signed.json").code == 0
    assert cli("audit", "verify", "--anchor", "signed.json", "--key", "key.pub").code == 0
    heads = json.loads(place.joinpath("signed.json").read_text())
    for changed in ({"records": 1}, {"signature": ""}, {"signature": "zz"}):
        place.joinpath("changed.json").write_text(json.dumps({**heads, **changed}))
        answer = cli("audit", "verify", "--anchor", "changed.json", "--key", "key.pub")
        assert (answer.code, "is not signed" in answer.err) == (2, True)
    for key in ("other.pub", "key.pem"):
        answer = cli("audit", "verify", "--anchor", "signed.json", "--key", key)
        assert (answer.code, "`openssl pkey -in key.pem -pubout` makes one" in answer.err) == (2, key == "key.pem")
    answer = cli("audit", "head", "--sign", "key.pub")
    assert (answer.code, "`openssl genpkey -algorithm ed25519` makes one" in answer.err) == (2, True)
    assert cli("audit", "verify", "--key", "key.pub").code == 2


def test_unreadable_input_is_reported(cli: Any, store: Path, place: Path) -> None:
    """No checkpoint file, or none in it: 2. A damaged store: 3."""
    assert cli("audit", "verify", "--anchor", "none.json").code == 2
    for odd in (b"{}", b'{"store_id": "\xff"}', b'{"sessions": ' + b"[" * 9_999):
        place.joinpath("odd.json").write_bytes(odd)
        assert cli("audit", "verify", "--anchor", "odd.json").code == 2, odd[:20]
    place.joinpath("text.db").write_text("no database, but long enough to look like a file of some kind " * 9)
    assert cli("audit", "verify", "--store", "text.db").code == 2
    data = bytearray(store.read_bytes())
    data[4096 : 4096 * 8] = b"\xff" * (4096 * 7)
    store.write_bytes(data)
    assert cli("audit", "verify").code == 3
