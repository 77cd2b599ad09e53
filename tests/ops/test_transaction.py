"""What a session does around its transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_runner import Site


def test_what_was_mended_is_told_when_the_lock_is_free_again(tmp_path: Path) -> None:
    """Somebody has pressed Ctrl-S, perhaps, and the others go on."""
    site, told = Site(tmp_path, "w0"), list[str]()
    site.launch("one")
    session = site.session()
    with (session.state.path / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":')

    def tell(message: str) -> None:
        with site.session().state.locked("iris schedule", 0.0):
            told.append(message)

    session.tell = tell
    with pytest.raises(ZeroDivisionError), session.transaction():
        _ = 1 / 0
    assert len(told) == 1
    assert "unfinished line" in told[0]
