"""Wrong tokens: counted by address, and answered no more for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import web_server
from web_server import ANA, EVE

from proctor.adapters.operations.identities import AccessTokens, one_token
from proctor.adapters.web.auth import AT_MOST, WINDOW_S, TooManyTriesError, Tries

GOOD = "a-token-that-is-good"


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At the start."""
    return Clock()


@pytest.fixture
def tries(clock: Clock) -> Tries:
    """With one good token."""
    tokens: AccessTokens = one_token(GOOD)[0]
    return Tries(tokens, clock)


def spent(tries: Tries, client: str) -> None:
    """All wrong tokens that an address has."""
    for n in range(AT_MOST):
        assert tries.holder(f"wrong-{n}", client) is None


def test_after_too_many_tries_the_answer_says_when_to_come_back(tries: Tries, clock: Clock) -> None:
    """And after the window wrong tokens are counted anew."""
    spent(tries, "10.0.0.1")
    clock.now = 10
    with pytest.raises(TooManyTriesError) as refused:
        tries.holder("wrong", "10.0.0.1")
    clock.now += refused.value.wait_s

    assert refused.value.wait_s == WINDOW_S - 10
    assert tries.holder("wrong", "10.0.0.1") is None


def test_wrong_tokens_lock_no_holder_out(tries: Tries) -> None:
    """Neither one who was there before nor one who comes for the first time, from the same address."""
    spent(tries, "127.0.0.1")

    assert tries.holder(GOOD, "127.0.0.1") is not None
    with pytest.raises(TooManyTriesError):
        tries.holder("wrong", "127.0.0.1")
    assert tries.holder("wrong", "10.0.0.2") is None


def test_one_ipv6_network_is_one_address(tries: Tries) -> None:
    """Whoever has one has 2**64 addresses; an IPv4 address in another form is itself."""
    spent(tries, "2001:db8::1")
    spent(tries, "::ffff:10.0.0.1")

    for client in ("2001:db8::2", "10.0.0.1"):
        with pytest.raises(TooManyTriesError):
            tries.holder("wrong", client)
    assert tries.holder("wrong", "2001:db8:0:1::1") is None


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[web_server.Site]:
    """A server behind a proxy on this machine."""
    with web_server.site(tmp_path, proxy="127.0.0.1", origins=("https://ops.example",)) as found:
        yield found


def test_the_server_answers_429_and_still_serves_every_holder(tmp_path: Path) -> None:
    """With the time to wait; what a header says of who asks counts nothing."""
    with web_server.site(tmp_path) as site:
        for n in range(AT_MOST):
            assert site.ask("GET", "/api/me", token="wrong", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status == 401
        refused = site.ask("GET", "/api/me", token="wrong")

        assert (refused.status, refused.data["code"]) == (429, "too_many_tries")
        assert 0 < int(refused.headers["retry-after"]) <= WINDOW_S
        assert [site.get("/api/me", token=token)["name"] for token in (ANA, EVE)] == ["ana", "eve"]


def test_behind_a_proxy_each_of_its_clients_has_tries_of_their_own(proxied: web_server.Site) -> None:
    """Where the proxy is named; the name that people reach it by is one of the server's, another is not."""
    names: dict[str, str | None] = {"Host": "ops.example", "Origin": "https://ops.example"}
    guesser, ana = ({**names, "X-Forwarded-For": client} for client in ("10.0.0.1", "10.0.0.2"))
    for _ in range(AT_MOST):
        assert proxied.ask("GET", "/api/me", token="wrong", headers=guesser).status == 401

    assert proxied.ask("GET", "/api/me", token="wrong", headers=guesser).status == 429
    assert proxied.ask("GET", "/api/me", token="wrong", headers=ana).status == 401
    assert proxied.ask("GET", "/api/me", headers=ana).data["name"] == "ana"
    assert proxied.ask("GET", "/api/me", headers={**ana, "Host": "evil.example"}).status == 421
    assert proxied.ask("GET", "/api/me", headers={**ana, "Origin": "http://ops.example"}).status == 403
