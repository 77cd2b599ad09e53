"""Resolving a Connection and an ssh config to hops."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.worker import Connection
from iris_cli.remote.ssh.config import Hop, Routes
from iris_cli.remote.transport import NoAnswer


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def way(tmp_path: Path, config: str, **connection: object) -> tuple[Hop, ...]:
    """Return the hops to `w` with a configuration."""
    (tmp_path / "config").write_text(config)
    settings = {"host": "w", **connection}
    return Routes(tmp_path / "config").resolve(Connection(**settings))  # type: ignore[arg-type]  # by name


def hop(tmp_path: Path, config: str, **connection: object) -> Hop:
    (only,) = way(tmp_path, config, **connection)
    return only


def places(hops: tuple[Hop, ...]) -> list[str]:
    return [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops]


ME = getpass.getuser()


def test_without_a_file_the_connection_and_the_usual_values_count(tmp_path: Path) -> None:
    for path in (None, tmp_path / "none"):
        (only,) = Routes(path).resolve(Connection(host="10.0.0.1"))
        assert only == Hop(label="10.0.0.1", host="10.0.0.1", port=22, user=ME, key_name="10.0.0.1")


def test_the_file_supplies_settings_that_the_connection_omits(tmp_path: Path) -> None:
    config = """
        Host w
            HostName W.example.org
            User u
            Port 2222
            IdentityFile ~/.ssh/one
            IdentityFile "%d/two"
            IdentitiesOnly yes
    """
    assert hop(tmp_path, config) == Hop(
        label="w",
        host="W.example.org",
        port=2222,
        user="u",
        key_name="[w.example.org]:2222",
        identities=(tmp_path / ".ssh/one", tmp_path / "two"),
        identities_only=True,
    )


def test_settings_of_the_connection_have_priority(tmp_path: Path) -> None:
    config = "Host w\n User u\n Port 2222\n IdentityFile /file\n"
    one = hop(tmp_path, config, user="me", port=22, key="~/key")
    assert (one.user, one.port, one.identities, one.has_own_key) == ("me", 22, (tmp_path / "key",), True)


@pytest.mark.parametrize(
    ("config", "port"),
    [
        ("Host w\n Port 1\nHost *\n Port 2\n", 1),
        ("Host x\n Port 1\nHost *\n Port 2\n", 2),
        ("Host * !w\n Port 1\nHost ?\n Port=3\n", 3),
        ("Port 4\n", 4),
        ("Match host w\n Port 5\n", 5),
        ("Match user nobody-else\n Port 6\n", 22),
    ],
)
def test_the_first_value_that_applies_counts(tmp_path: Path, config: str, port: int) -> None:
    assert hop(tmp_path, config).port == port


@pytest.mark.parametrize(("command", "port"), [("true", 7), ('"test %h = w"', 7), ("false", 22)])
def test_a_command_may_say_whether_a_block_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, port: int
) -> None:
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)  # the command contains it, too
        assert hop(tmp_path, f"Match exec {command}\n Port 7\n").port == port


def test_an_alias_names_the_key_and_other_files_may_hold_it(tmp_path: Path) -> None:
    config = "Host w\n HostKeyAlias compute.123\n UserKnownHostsFile ~/a /b\n"
    one = hop(tmp_path, config)
    assert (one.key_name, one.known_hosts) == ("compute.123", (tmp_path / "a", Path("/b")))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("Host w\n ProxyJump a\n", [f"{ME}@a:22", f"{ME}@w:22"]),
        ("Host w\n ProxyJump u@a:23,b\n", ["u@a:23", f"{ME}@b:22", f"{ME}@w:22"]),
        ("Host w\n ProxyJump ssh://u@a:23\n", ["u@a:23", f"{ME}@w:22"]),
        ("Host w\n ProxyJump u@[fe80::1]:23\n", ["u@fe80::1:23", f"{ME}@w:22"]),
        ("Host w\n ProxyJump none\nHost *\n ProxyJump a\n", [f"{ME}@w:22"]),
        (
            "Host w\n ProxyJump a\nHost a\n HostName a.org\n User ua\n Port 24\n",
            ["ua@a.org:24", f"{ME}@w:22"],
        ),
        ("Host w\n ProxyJump b\nHost b\n ProxyJump a\n", [f"{ME}@a:22", f"{ME}@b:22", f"{ME}@w:22"]),
        ("Host w\n ProxyJump a,b\nHost b\n ProxyJump c\n", [f"{ME}@a:22", f"{ME}@b:22", f"{ME}@w:22"]),
    ],
)
def test_jump_hosts_are_passed_in_order(tmp_path: Path, config: str, expected: list[str]) -> None:
    assert places(way(tmp_path, config)) == expected


def test_the_jump_hosts_of_the_connection_win(tmp_path: Path) -> None:
    config = "Host w\n ProxyJump a\n"
    assert places(way(tmp_path, config, proxy_jump="b")) == [f"{ME}@b:22", f"{ME}@w:22"]
    assert places(way(tmp_path, config, proxy_jump="none")) == [f"{ME}@w:22"]


def test_a_jump_host_without_a_key_uses_that_of_the_connection(tmp_path: Path) -> None:
    config = "Host a\n IdentityFile /file\n"
    a, b, w = way(tmp_path, config, proxy_jump="a,b", key="/key", user="u")
    assert [a.identities, b.identities, w.identities] == [(Path("/file"),), (Path("/key"),), (Path("/key"),)]
    assert [a.has_own_key, b.has_own_key, w.has_own_key] == [False, False, True]
    assert [a.user, b.user, w.user] == [ME, ME, "u"]


def test_a_proxy_command_gets_the_connections_own_values(tmp_path: Path) -> None:
    config = "Host w\n HostName w.org\n Port 1\n User u\n ProxyCommand nc -x %n %h %p %r %%\n"
    assert hop(tmp_path, config, port=2).proxy_command == "nc -x w w.org 2 u %"
    assert hop(tmp_path, "Host w\n ProxyCommand none\n").proxy_command == ""


def test_included_files_are_read_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1").write_text("User inside-block\nHost w\n Port 1\n")
    (tmp_path / "conf.d" / "2").write_text("Host *\n Port 2\n")
    (tmp_path / "conf.d" / "3").write_text("Include nested\nIdentityFile /nested\n")
    (tmp_path / "nested").write_text("Host x\n Port 3\n")
    config = "Host w\n Include conf.d/* no-such-file\n HostName from-outer-block\n"
    one = hop(tmp_path, config)
    assert (one.user, one.port, one.host) == ("inside-block", 1, "from-outer-block")
    assert one.identities == (Path("/nested"),)
    other = hop(tmp_path, config, host="x")
    assert (other.host, other.port, other.identities) == ("x", 2, ())


@pytest.mark.parametrize(
    ("config", "connection", "what"),
    [
        ("Host w\n Port\n", {}, "Unparsable line Port"),
        ("Match nonsense\n", {}, "config"),
        ("Match host 'w\n", {}, "config"),
        ("Host w\n Port none\n", {}, "'none' is not a port"),
        ("Host w\n Port 99999\n", {}, "'99999' is not a port"),
        ("Host w\n ProxyJump w\n", {}, "more than 8 jump hosts"),
        ("Host w\n ProxyJump a:b:c\n", {}, "'a:b:c' is not a jump host"),
        ("Host w\n ProxyJump ,\n", {}, "'' is not a jump host"),
        ("", {"host": "-oProxyCommand=x"}, "is not a host name"),
        ("", {"host": "a b"}, "is not a host name"),
        ("Host w\n HostName $(id)\n", {}, "is not a host name"),
        ("Host w\n User $(id)\n ProxyCommand nc %r\n", {}, "can't be used in a ProxyCommand"),
        ("Include config\n", {}, "more than 8 files"),
        ("\0\n", {}, "config"),
    ],
)
def test_invalid_settings_are_local_errors(
    tmp_path: Path, config: str, connection: dict[str, object], what: str
) -> None:
    with pytest.raises(NoAnswer, match="configuration: ") as caught:
        way(tmp_path, config, **connection)
    assert what in caught.value.detail
    assert (caught.value.kind, caught.value.sent) == (SilenceKind.LOCAL, False)


@pytest.mark.parametrize("content", [b"Host \xff\n", b"# " + b"x" * (1 << 21)])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").write_bytes(content)
    with pytest.raises(NoAnswer) as caught:
        Routes(tmp_path / "config")
    assert str(tmp_path / "config") in caught.value.detail
    assert caught.value.kind is SilenceKind.LOCAL


def test_a_local_user_without_a_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def getuser() -> str:
        raise KeyError("uid not found: 4242")

    monkeypatch.setattr("getpass.getuser", getuser)
    with pytest.raises(NoAnswer) as caught:
        Routes(None).resolve(Connection(host="w"))
    assert caught.value.hint == "export USER=name"
