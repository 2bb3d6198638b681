"""A server for the tests of a module."""

from collections.abc import Iterator

import pytest
import web_server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[web_server.Site]:
    with web_server.site(tmp_path_factory.mktemp("web")) as found:
        yield found
