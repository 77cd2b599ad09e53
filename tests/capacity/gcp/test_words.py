"""What is said where Google says no, and where its client or the credentials are missing: each tells what to type."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import Refusal
from tests.capacity.gcp_place import GcpPlace

exceptions = pytest.importorskip("google.api_core.exceptions")
auth = pytest.importorskip("google.auth.exceptions")
ROOT = Path(__file__).parents[3]
LOG_IN = "gcloud auth application-default login"


def said(error: Exception) -> ProviderError:
    from iris_cli.capacity.gcp.reading import convert_error

    return convert_error(error, "lab")


def answered(code: int, message: str, reason: str = "") -> ProviderError:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    return said(exceptions.from_http_status(code, f"POST https://tpu/v2/x: {message}", details=details))


@pytest.mark.parametrize(
    ("code", "message", "reason", "refusal", "words"),
    [
        (
            401,
            "Bad token",
            "",
            Refusal.DENIED,
            f"Google does not accept the credentials: Bad token ({LOG_IN})",
        ),
        (403, "No", "", Refusal.DENIED, "No (role roles/tpu.admin in project lab allows it)"),
        (
            403,
            "Cloud TPU API has not been used in project 7 before or it is disabled.",
            "SERVICE_DISABLED",
            Refusal.DENIED,
            "the Cloud TPU API is off in project lab: gcloud services enable tpu.googleapis.com --project lab",
        ),
        *(
            (
                403,
                message,
                "SERVICE_DISABLED",
                Refusal.DENIED,
                "the credentials have no quota project: "
                "gcloud auth application-default set-quota-project lab",
            )
            for message in (
                "The tpu.googleapis.com API requires a quota project, which is not set by default.",
                "Cloud TPU API has not been used in project 764086051850 before or it is disabled.",
            )
        ),
        (429, "Quota limit 'T' has been exceeded.", "", Refusal.QUOTA, "Quota limit 'T' has been exceeded."),
        (429, "Slow down", "RATE_LIMIT_EXCEEDED", Refusal.UNANSWERED, "Slow down"),
        (
            429,
            "There is no more capacity in the zone",
            "",
            Refusal.STOCKOUT,
            "There is no more capacity in the zone",
        ),
        (503, "not enough resources", "", Refusal.STOCKOUT, "not enough resources"),
        (503, "try again", "", Refusal.UNANSWERED, "503 try again"),
        (400, "No such\n  type", "", Refusal.INVALID, "No such type"),
        (404, "No zone", "", Refusal.INVALID, "No zone"),
    ],
)
def test_each_refusal_is_one_line_of_its_kind(
    code: int, message: str, reason: str, refusal: Refusal, words: str
) -> None:
    error = answered(code, message, reason)
    assert (error.refusal, error.message) == (refusal, words)


def test_a_long_refusal_is_cut() -> None:
    assert len(answered(400, "x" * 9999).message) == 400


@pytest.mark.parametrize(
    ("error", "refusal", "words"),
    [
        (auth.DefaultCredentialsError("none"), Refusal.DENIED, LOG_IN),
        (auth.RefreshError("invalid_grant", {}), Refusal.DENIED, f"revoked: invalid_grant ({LOG_IN})"),
        (auth.RefreshError("later", retryable=True), Refusal.UNANSWERED, "no way to log in"),
        (auth.TransportError("no route"), Refusal.UNANSWERED, "no way to log in"),
        (OSError("no route"), Refusal.UNANSWERED, "no answer from Google: OSError: no route"),
    ],
)
def test_credentials_and_networks_that_fail(error: Exception, refusal: Refusal, words: str) -> None:
    assert said(error).refusal is refusal
    assert words in said(error).message


@pytest.mark.parametrize(
    ("code", "message", "refusal"),
    [
        (8, "Quota limit", Refusal.QUOTA),
        (8, "There is no more capacity in the zone", Refusal.STOCKOUT),
        (14, "Insufficient capacity", Refusal.STOCKOUT),
        (14, "", Refusal.UNANSWERED),
        (3, "", Refusal.INVALID),
        (7, "", Refusal.DENIED),
    ],
)
def test_the_status_of_a_failed_operation_has_its_kind_of_refusal(
    code: int, message: str, refusal: Refusal
) -> None:
    from iris_cli.capacity.gcp.reading import parse_status

    assert parse_status(code, message)[0] is refusal


def test_without_credentials_it_says_how_to_log_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: GcpPlace
) -> None:
    for variable in ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ProviderError, match=LOG_IN) as refused:
        place.provider()
    assert refused.value.refusal is Refusal.DENIED


def test_credentials_are_looked_for_again_once_they_were_refused(
    monkeypatch: pytest.MonkeyPatch, place: GcpPlace
) -> None:
    """Somebody may log in while `iris watch` goes on."""
    from google.auth.credentials import AnonymousCredentials

    from iris_cli.capacity.gcp import api

    def find(scopes: list[str]) -> tuple[AnonymousCredentials, str]:
        found.append(scopes)
        return AnonymousCredentials(), "lab"

    def refuse(**_: Any) -> None:
        raise exceptions.Unauthorized("no")

    found: list[list[str]] = []
    monkeypatch.delenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU")
    monkeypatch.setattr(api, "default_credentials", find)
    api._credentials.cache_clear()
    try:
        opened = [api.Api("lab", "us-west4-a") for _ in range(2)]
        assert len(found) == 1
        with pytest.raises(ProviderError):
            opened[0]._call(refuse, None)
        api.Api("lab", "us-west4-a")
        assert len(found) == 2
    finally:
        api._credentials.cache_clear()


@pytest.mark.parametrize("content", [None, "{"], ids=["missing", "broken"])
def test_a_file_of_credentials_that_is_no_use_is_named_for_a_log_in_would_not_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: GcpPlace, content: str | None
) -> None:
    monkeypatch.delenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU")
    file = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    if content is not None:
        file.write_text(content)
    with pytest.raises(ProviderError, match=f"GOOGLE_APPLICATION_CREDENTIALS: File {file}") as refused:
        place.provider()
    assert refused.value.refusal is Refusal.DENIED
    assert LOG_IN not in refused.value.message


def test_warnings_of_googles_own_are_not_said(tmp_path: Path) -> None:
    """As of who has logged in and has no quota project: each minute, from cron."""
    user = {
        "type": "authorized_user",
        "client_id": "764086051850-6qr4p6gpi6hn506pt8ejuq83di341hur.apps.googleusercontent.com",
        "client_secret": "x",
        "refresh_token": "y",
    }
    (tmp_path / ".config/gcloud").mkdir(parents=True)
    (tmp_path / ".config/gcloud/application_default_credentials.json").write_text(json.dumps(user))
    code = "from iris_cli.capacity.gcp.api import Api; Api('lab', 'us-west4-a'); print('made')"
    assert run(code, cwd=tmp_path) == ("made", "")


def run(code: str, cwd: Path = ROOT) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )
    return done.stdout.strip(), done.stderr.strip()


def test_without_the_client_a_configuration_is_checked_and_its_slices_are_not_made() -> None:
    out, errors = run(
        """
import sys
sys.modules["google"] = None
from pathlib import Path
from iris_cli.capacity.opening import open_provider
from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.capacity.provider import ProviderError
from iris_cli.config.load import load_cluster_config
from iris_cli.core.messages.cloud import Scope
group, *_ = load_cluster_config(Path("cluster.example.yaml")).scale_groups
try:
    open_provider(Scope.of(group.template), "us", Path("."), {}, SYSTEM_CLOCK, None, None)
except ProviderError as error:
    print(error.refusal, error.message)
"""
    )
    assert (out, errors) == (
        'denied Google\'s client is missing (google.api_core): pip install "iris-cli[gcp]"',
        "",
    )


def test_what_asks_nobody_does_not_load_the_client(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text((ROOT / "cluster.example.yaml").read_text())
    out, errors = run(
        """
import sys
from iris_cli.cli.app import main
for command in ("status", "autoscale --dry-run", "config validate"):
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as end:
        print(end.code, "google" in sys.modules)
""",
        cwd=tmp_path,
    )
    ends = [line for line in out.splitlines() if line.endswith(("True", "False"))]
    assert ends == ["0 False"] * 3, errors


def test_an_answer_that_is_not_from_google_counts_as_no_answer(
    place: GcpPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy gives it."""
    from tests.support.tpu_emulator import server

    def shout(handler: Any, code: int, said: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "6")
        handler.end_headers()
        handler.wfile.write(b"<html>")

    monkeypatch.setattr(server._Handler, "_send", shout)
    with pytest.raises(ProviderError, match="no answer from Google") as refused:
        place.provider().list()
    assert refused.value.refusal is Refusal.UNANSWERED
