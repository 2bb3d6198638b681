"""A server for the tests of a module."""

from collections.abc import Iterator
from typing import Any

import pytest
import web_server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[web_server.Site]:
    with web_server.site(tmp_path_factory.mktemp("web")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests."""
    from tests.dashboard import sync_api

    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=web_server.CHROMIUM, args=web_server.QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def person(browser: Any, site: web_server.Site) -> Iterator[Any]:
    from tests.dashboard import Person

    found = Person(browser, site)
    yield found
    found.close()
    assert found.wrong == []
