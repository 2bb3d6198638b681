"""`--context`: what is typed is what rules see."""

from __future__ import annotations

from typing import Any

import click
import pytest

from proctor.adapters.cli.options import read_context


@pytest.mark.parametrize(
    "text", ["1.10", "true", "True", "null", "0007", "1e3", '"quoted"', "[1]", "{}", "", "a=b", "a:=b"]
)
@pytest.mark.parametrize("key", ["tenant", "user", "user_role", "labels.env", "metadata.team"])
def test_a_value_is_the_text_that_was_typed(key: str, text: str) -> None:
    """Whatever else it could be read as."""
    assert at(key, f"{key}={text}") == text


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1.10", 1.1),
        ("true", True),
        ("null", None),
        ('"1.10"', "1.10"),
        ('["a", 2]', ["a", 2]),
        ('{"a": 1}', {"a": 1}),
    ],
)
def test_metadata_may_be_json_where_that_is_asked_for(typed: str, value: Any) -> None:
    """By `:=`."""
    assert at("metadata.x", f"metadata.x:={typed}") == value


def test_a_field_may_be_none_on_purpose() -> None:
    """Which holds for nothing but `exists: false`."""
    assert at("user_role", "user_role:=null") is None
    assert at("tenant", 'tenant:="1.10"') == "1.10"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tenant", "is not KEY=VALUE"),
        ("=x", "is not KEY=VALUE"),
        (":=1", "is not KEY=VALUE"),
        ("tenant:=1.10", "`tenant` is text"),
        ("labels.env:=1", "`labels.env` is text"),
        ("metadata.x:=1.1.0", "what follows `:=` is not JSON"),
        ("tennant=x", "`tenant`"),
        ("labels=x", "`labels.NAME`"),
        ("labels.=x", "`labels.NAME`"),
    ],
)
def test_what_cannot_be_meant_is_an_error(given: str, message: str) -> None:
    """With the place and what to write."""
    with pytest.raises(click.UsageError) as refused:
        read_context([given])

    assert f"`--context {given.partition('=')[0].removesuffix(':')}" in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        ("tenant=red", "tenant=blue"),
        ("tenant=red", "tenant:=null"),
        ("labels.env=a", "labels.env=a"),
        ("metadata.n=1", "metadata.n:=1"),
    ],
)
def test_a_fact_is_given_once(given: tuple[str, str]) -> None:
    """The later one does not win without a word."""
    with pytest.raises(click.UsageError, match="is given twice"):
        read_context(given)


def test_an_option_of_the_adapter_is_given_once(cli: Any, place: Any) -> None:
    """`--set` twice of one option is an error, as `--model` beside `--set model=` is."""
    run = ("run", "--adapter", "shell", "--set", "command_timeout_s=5", "--set", "command_timeout_s=500", "true")
    ended = cli(*run)

    assert ended.code == 2
    assert "`--set command_timeout_s=...` is given twice" in ended.err


def test_a_rule_that_compares_text_compares_what_was_typed(cli: Any, place: Any) -> None:
    """`1.10` is not `1.1`."""
    place.joinpath("when.yaml").write_text(
        "name: w\non_violation: deny\nrules:\n"
        "  - {type: blocklist, id: r, tools: [bash], when: [{path: $.tenant, equals: '1.10'}]}\n"
    )
    run = ("run", "--adapter", "shell", "--policy", "when.yaml", "--json", "echo hello")

    assert cli(*run, "--context", "tenant=1.10").code == 1
    assert cli(*run, "--context", "tenant=1.1").code == 0


def at(key: str, given: str) -> Any:
    """What a context that is given so has at a key."""
    found: Any = read_context([given])
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found
