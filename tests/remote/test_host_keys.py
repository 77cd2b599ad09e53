"""known_hosts files: their lines, and updates of iris's own file."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.remote.host_keys import HostKeys, PresentedKey, known_hosts_name, parse
from tests.support.fan_out import fan_out
from tests.support.sshd import presented, write_key


def some_key(seed: int = 0, kind: str = "ssh-ed25519") -> PresentedKey:
    """Return a key of no server; equal seeds give equal keys."""
    return PresentedKey.parse(
        len(kind).to_bytes(4, "big") + kind.encode() + (32).to_bytes(4, "big") + bytes([seed]) * 32
    )


KEY, OTHER = some_key(0), some_key(1)


def line(patterns: str, key: PresentedKey = KEY, marker: str = "") -> str:
    return f"{marker} {patterns} {key.type} {key.base64}".strip() + "\n"


def test_the_fingerprint_is_the_one_that_ssh_keygen_prints(tmp_path: Path) -> None:
    public = write_key(tmp_path / "key")
    command = ["ssh-keygen", "-l", "-f", str(tmp_path / "key.pub")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert presented(public).fingerprint in printed.split()


@pytest.mark.parametrize(
    ("patterns", "name", "is_meant"),
    [
        ("a.example.org", "a.example.org", True),
        ("a.example.org", "A.Example.ORG", True),
        ("A.example.org", "a.example.org", True),
        ("a.example.org", "b.example.org", False),
        ("a.example.org", "a.example.org.evil.net", False),
        ("a,b,10.0.0.1", "10.0.0.1", True),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "example.org", False),
        ("10.0.0.?", "10.0.0.7", True),
        ("10.0.0.?", "10.0.0.77", False),
        ("*,!bad.example.org", "good.example.org", True),
        ("*,!bad.example.org", "bad.example.org", False),
        ("[a.example.org]:2222", "[a.example.org]:2222", True),
        ("[a.example.org]:2222", "a.example.org", False),
        ("[*]:2222", "[a.example.org]:2222", True),
        ("a.example.org", "[a.example.org]:2222", False),
        ("a+b", "aab", False),
        ("*" * 200 + "x", "y" * 200, False),
    ],
)
def test_a_line_matches_hosts_like_ssh(patterns: str, name: str, is_meant: bool) -> None:
    (parsed,) = parse(line(patterns))
    assert parsed.applies_to(name) is is_meant


def test_a_hashed_name_means_that_host_alone(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line("[a.example.org]:2222") + line("10.0.0.1", OTHER))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "example" not in file.read_text()
    first, second = parse(file.read_text())
    assert (first.applies_to("[a.example.org]:2222"), first.applies_to("10.0.0.1")) == (True, False)
    assert (second.applies_to("[a.example.org]:2222"), second.applies_to("10.0.0.1")) == (False, True)


@pytest.mark.parametrize(
    "garbage",
    [
        "# a comment\n",
        "\n",
        "host\n",
        "host ssh-ed25519\n",
        "host ssh-ed25519 not-base64!\n",
        "host ssh-ed25519 AAAA\n",
        f"host ssh-rsa {KEY.base64}\n",
        f"host 2048 65537 {'9' * 600}\n",
        f"@unknown-marker host {KEY.type} {KEY.base64}\n",
        "|1|broken ssh-ed25519 AAAA\n",
        "\0\x1b[2J\xff\n",
    ],
)
def test_a_line_that_can_not_be_used_is_passed_over(garbage: str) -> None:
    assert [one.patterns for one in parse(garbage + line("host") + garbage)] == ["host"]


@pytest.mark.parametrize("hashed", ["|1|x|y", "|1|", "|2|AAAA|AAAA", "|1|AAAA|AAAA|AAAA", "|"])
def test_a_broken_hash_matches_no_host(hashed: str) -> None:
    (parsed,) = parse(line(hashed))
    assert not parsed.applies_to("host")


@given(st.text(max_size=400))
def test_no_text_makes_parsing_fail(text: str) -> None:
    for one in parse(text):
        one.applies_to("host")


@given(st.binary(max_size=80))
def test_no_bytes_make_a_key_of_two_types(blob: bytes) -> None:
    try:
        key = PresentedKey.parse(blob)
    except ValueError:
        return
    assert base64.b64decode(key.base64) == blob
    assert key.type.isascii()


@pytest.mark.parametrize(
    ("host", "port", "name"), [("a", 22, "a"), ("a", 2222, "[a]:2222"), ("::1", 23, "[::1]:23")]
)
def test_names_of_hosts_in_known_hosts(host: str, port: int, name: str) -> None:
    assert known_hosts_name(host, port) == name


def test_our_own_entry_wins_over_the_users(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(line("host", OTHER))
    keys = HostKeys(tmp_path / "own")
    assert keys.find_worker_keys("w", "host", [users]).keys == (OTHER,)
    keys.put({"w": KEY})
    assert keys.find_worker_keys("w", "host", [users]).keys == (KEY,)


def test_the_users_entry_of_a_jump_host_has_priority(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(line("bastion", OTHER))
    keys = HostKeys(tmp_path / "own")
    keys.put({"bastion": KEY})
    assert keys.find_jump_host_keys("bastion", [users]).keys == (OTHER,)
    assert keys.find_jump_host_keys("bastion", []).keys == (KEY,)


def test_marked_lines_are_no_keys_of_the_host(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(line("*", KEY, "@revoked") + line("*.org", OTHER, "@cert-authority"))
    known = HostKeys(tmp_path / "own").find_worker_keys("w", "host.org", [users])
    assert (known.keys, set(known.revoked), known.certified) == ((), {KEY.base64}, True)


def test_a_revocation_counts_even_for_a_key_that_we_recorded(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(line("*", KEY, "@revoked"))
    keys = HostKeys(tmp_path / "own")
    keys.put({"w": KEY})
    assert keys.find_worker_keys("w", "host", [users]).revoked == {KEY.base64}


def test_several_keys_of_a_host_are_all_known(tmp_path: Path) -> None:
    users = tmp_path / "users"
    rsa = some_key(2, "ssh-rsa")
    users.write_text(line("host") + line("other", OTHER) + line("host", rsa))
    assert HostKeys(tmp_path / "own").find_worker_keys("w", "host", [users]).keys == (KEY, rsa)


def test_missing_files_have_no_keys(tmp_path: Path) -> None:
    known = HostKeys(tmp_path / "own").find_worker_keys("w", "host", [tmp_path / "none", Path("/dev/null")])
    assert known.keys == ()


def test_a_first_key_is_recorded_once_and_stays(tmp_path: Path) -> None:
    keys = HostKeys(tmp_path / "own")
    assert keys.add_first("w", KEY)
    assert keys.add_first("w", KEY)
    assert not keys.add_first("w", OTHER)
    assert (tmp_path / "own").read_text() == line("w")


def test_a_recorded_key_is_seen_by_the_next_invocation(tmp_path: Path) -> None:
    HostKeys(tmp_path / "own").add_first("w", KEY)
    assert HostKeys(tmp_path / "own").find_worker_keys("w", "host", []).keys == (KEY,)


def test_changes_by_other_processes_are_seen(tmp_path: Path) -> None:
    looping, other = HostKeys(tmp_path / "own"), HostKeys(tmp_path / "own")
    assert not looping.has("west-1-0")
    for key in (KEY, OTHER):
        other.put({"west-1-0": key})
        assert looping.find_worker_keys("west-1-0", "a", []).keys == (key,)
    other.forget(lambda owner: owner == "west-1-0")
    assert not looping.has("west-1-0")


def test_putting_a_key_replaces_the_workers_others_and_touches_nothing_else(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.touch(mode=0o600)
    kept = "# kept\n" + line("w2", OTHER) + "garbage\n"
    own.write_text(line("w") + kept + line("w", some_key(2, "ssh-rsa")))
    HostKeys(own).put({"w": OTHER})
    assert own.read_text() == kept + line("w", OTHER)


def test_our_file_and_its_directory_are_private(tmp_path: Path) -> None:
    own = tmp_path / "state" / "known_hosts"
    old = os.umask(0)
    try:
        HostKeys(own).put({"w": KEY})
    finally:
        os.umask(old)
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in own.parent.iterdir()) == ["known_hosts", "known_hosts.lock"]


def test_a_symbolic_link_in_the_place_of_our_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(line("w", OTHER))
    (tmp_path / "own").symlink_to("elsewhere")
    keys = HostKeys(tmp_path / "own")
    with pytest.raises(OSError, match="own"):
        keys.find_worker_keys("w", "host", [])
    with pytest.raises(OSError, match="own"):
        keys.put({"w": KEY})
    assert (tmp_path / "elsewhere").read_text() == line("w", OTHER)


def test_a_file_of_ours_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.touch()
    own.chmod(0o662)
    with pytest.raises(PermissionError, match="chmod 600"):
        HostKeys(own).find_worker_keys("w", "host", [])


def test_something_else_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a known_hosts file"):
        HostKeys(tmp_path / "own").find_worker_keys("w", "host", [tmp_path / "fifo"])


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Each writer has its own HostKeys, as separate processes do."""
    list(fan_out(range(40), lambda n: HostKeys(tmp_path / "own").add_first(f"w{n}", some_key(n))))
    keys = HostKeys(tmp_path / "own")
    assert [keys.find_worker_keys(f"w{n}", "host", []).keys for n in range(40)] == [
        (some_key(n),) for n in range(40)
    ]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    HostKeys(own).put({"w": KEY})

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        HostKeys(own).put({"w": OTHER})
    assert own.read_text() == line("w")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "own.lock"]
