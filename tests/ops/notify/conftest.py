"""A real server to post to, and the processes of real commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.listener import Listener, listening


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with listening() as found:
        yield found
