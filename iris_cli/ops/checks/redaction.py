"""Redact text for publication: replace each host, address and user by one pseudonym, and hide secrets."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property

MIN_SECRET = 4
"""Minimum number of characters of a value that is hidden everywhere. Shorter values occur in ordinary words."""
_MAX_LINE = 20_000  # characters of a line, because the time for patterns grows with the square of the length
_MIN_WITHIN_WORDS = 6  # characters; names of this length are also replaced within words
_NEVER_REDACTED = frozenset(("iris", "localhost", "127.0.0.1", "::1", "", "none"))
_FILE_SUFFIXES = (
    "py|sh|yaml|yml|json|jsonl|log|txt|toml|lock|tmp|part|pub|gz|tar|so|md|conf|cfg|csv|html|cpp|cc|h|c|js"
    "|ipynb|pem|key"
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>]+", re.IGNORECASE)
_LOGIN = re.compile(r"(?<![\w.+-])([\w.+-]+)@(\[?[\w.:-]*\w\]?)")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?(?![:\w])"
_IPV6 = re.compile(
    rf"(?<![\w:-])(?!{_CLOCK})(?=[0-9a-fA-F]*:[0-9a-fA-F:]*:)[0-9a-fA-F:]{{3,}}(?:%\w+)?(?![\w:])"
)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(
    rf"(?<![\w.-])(?:{_LABEL}\.){{1,20}}(?!(?:{_FILE_SUFFIXES})\b)[a-z][a-z0-9-]*[a-z0-9](?![\w-])",
    re.IGNORECASE,
)
_HOME = re.compile(r"(?:(?<=/home/)|(?<=/Users/))[^/\s'\":;,]+")
_TOKEN = re.compile(
    r"(?<![\w+/=-])(?=[\w+/=.-]{0,200}[0-9])(?=[\w+/=.-]{0,200}[A-Za-z])[\w+/=-]{20,}(?![\w+/=-])"
)
_SENSITIVE_NAME = (
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|private)[_-]?key)[\w-]{0,40}"
)
_NAMED_SECRET = re.compile(
    rf"({_SENSITIVE_NAME}[\"']?\s*=\s*|{_SENSITIVE_NAME}[\"']\s*:\s*|--(?!secret\b)[\w-]{{0,40}}?{_SENSITIVE_NAME}\s+"
    r"|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token)\s+)?|\bbearer\s+)"
    r"(?:\"(?:[^\"\\]|\\.){0,2000}\"|'[^']{0,2000}'|[^\s\"',;&]+)",
    re.IGNORECASE,
)
"""Pattern for a value whose name marks it as secret: NAME=VALUE, JSON, an option, or a header."""
_LONG_LINE = re.compile(rf"^(.{{{_MAX_LINE}}}).+", re.MULTILINE)
_PSEUDONYM = re.compile(r"(?:host|user|token)-\d+")


class Redactor:
    """Redacts text. Register all sensitive names and values with `know_...` before the first call of `text`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # pseudonyms by name in lower case
        self._counts: dict[str, int] = {}
        self._secrets: set[str] = set()
        self._paths: dict[str, str] = {}

    def know_hosts(self, names: Iterable[str]) -> None:
        """Register names and addresses of hosts. The port of `host:port` or `[v6]:port` is ignored."""
        for name in names:
            self._host(name)

    def know_users(self, names: Iterable[str]) -> None:
        for name in names:
            self._pseudonym("user", name)

    def know_login(self, login: str) -> None:
        """Register the host and the user of `user@host`, or of `host`."""
        user, _, host = login.rpartition("@")
        self.know_hosts([host])
        self.know_users([user])

    def know_secrets(self, values: Iterable[str]) -> None:
        """Register values to hide everywhere: the whole value, each line of it, and both as written in JSON."""
        for value in values:
            lines = (value, *value.splitlines(), *(line.strip() for line in value.splitlines()))
            for line in lines:
                lines += (json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1])
            self._secrets.update(line for line in lines if len(line) >= MIN_SECRET)
        self.__dict__.pop("_secret_pattern", None)

    def know_path(self, path: str, name: str) -> None:
        """Register a directory that is replaced by `name`."""
        if len(path) > 1:
            self._paths[path.rstrip("/")] = name

    def user(self, name: str) -> str:
        """Return the pseudonym of a user."""
        return self._pseudonym("user", name)

    def text(self, text: str) -> str:
        """Return the text without secrets, addresses, URLs, names of hosts and users, and registered paths.

        The rest of a very long line is cut off.
        """
        text = self._secret_pattern.sub("<secret>", text)
        text = _LONG_LINE.sub(r"\1<cut>", text)
        for path in sorted(self._paths, key=len, reverse=True):
            text = text.replace(path, self._paths[path])
        text = _NAMED_SECRET.sub(r"\1<secret>", text)
        text = _URL.sub(lambda _: "<url>", text)
        text = _LOGIN.sub(lambda found: f"{self.user(found[1])}@{self._host(found[2])}", text)
        text = _HOME.sub(lambda found: self.user(found[0]), text)
        text = _TOKEN.sub(lambda found: self._pseudonym("token", found[0]), text)
        for pattern in (_HOST_NAME, _IPV4, _IPV6):
            text = pattern.sub(lambda found: self._host(found[0]), text)
        return self._name_pattern.sub(lambda found: self._names[found[0].lower()], text)

    def _host(self, name: str) -> str:
        return self._pseudonym("host", _without_port(name))

    def _pseudonym(self, kind: str, name: str) -> str:
        folded = name.strip("[]").lower()
        if folded in _NEVER_REDACTED or _PSEUDONYM.fullmatch(folded):
            return name
        if folded not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[folded] = f"{kind}-{self._counts[kind]}"
            self.__dict__.pop("_name_pattern", None)
        return self._names[folded]

    @cached_property
    def _secret_pattern(self) -> re.Pattern[str]:
        return _any_of(sorted(self._secrets, key=len, reverse=True), re.escape)

    @cached_property
    def _name_pattern(self) -> re.Pattern[str]:
        return _any_of(sorted(self._names, key=len, reverse=True), _pattern_of_name, re.IGNORECASE)


def _pattern_of_name(name: str) -> str:
    """Return a pattern for a name. Only a long name matches within words, because short names match by chance."""
    escaped = re.escape(name)
    return escaped if len(name) >= _MIN_WITHIN_WORDS else rf"(?<![\w-]){escaped}(?![\w-])"


def _any_of(words: Iterable[str], pattern: Callable[[str], str], flags: int = 0) -> re.Pattern[str]:
    return re.compile("|".join(map(pattern, words)) or r"(?!)", flags)


def _without_port(name: str) -> str:
    """Return the host without its port: 10.0.0.1 for `10.0.0.1:2222`."""
    host, colon, port = name.rpartition(":")
    return (
        host.strip("[]") if colon and port.isdecimal() and (":" not in host or host.endswith("]")) else name
    )
