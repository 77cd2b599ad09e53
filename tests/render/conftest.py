"""What the tests of views share."""

from __future__ import annotations

import pytest

from tests.render.snapshots import Screen


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(capsys, monkeypatch)
