"""What Google says when it says no, as the few kinds of no that matter, in words that tell what to do.

Codes are those of google.rpc.Code: https://cloud.google.com/apis/design/errors.
"""

from __future__ import annotations

import os
import re

from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import Refusal

_EXHAUSTED, _UNAVAILABLE = 8, 14
_LOG_IN = "gcloud auth application-default login"
_NAMED_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECT_OF_GCLOUD = "764086051850"  # that of all who logged in, with no API switched on
_NO_MACHINES = re.compile(
    r"no more capacity|not enough (?:available )?(?:capacity|resources)|insufficient capacity|stock.?out"
    r"|resource_pool_exhausted|does not have enough resources",
    re.IGNORECASE,
)
_TOO_MANY_CALLS = re.compile(r"rate.?limit|per.minute|requests? per", re.IGNORECASE)
_CALL = re.compile(r"(GET|POST|PATCH|DELETE|PUT) \S+: ")
_MOST = 400  # characters of what somebody else says


def error_of(error: Exception, project: str) -> ProviderError:
    """What an exception of the client means."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, GoogleAPICallError):
        return _answered(error, project)
    if isinstance(error, DefaultCredentialsError):
        return ProviderError(Refusal.DENIED, _without_credentials(error))
    if isinstance(error, RefreshError) and not error.retryable:
        why = plain(str(error.args[0])) if error.args else "no reason given"
        return ProviderError(
            Refusal.DENIED,
            f"the Google Cloud credentials have expired or were revoked: {why} ({_LOG_IN})",
        )
    kind = (
        "no way to log in to Google Cloud" if isinstance(error, GoogleAuthError) else "no answer from Google"
    )
    return ProviderError(Refusal.UNANSWERED, f"{kind}: {type(error).__name__}: {plain(str(error))}")


def _without_credentials(error: DefaultCredentialsError) -> str:
    """A file that was named comes before any log-in, and a variable of one's shell is not set in cron."""
    if os.environ.get(_NAMED_FILE):
        return f"no Google Cloud credentials from {_NAMED_FILE}: {plain(str(error.args[0]))}"
    return f"no Google Cloud credentials: {_LOG_IN} ({_NAMED_FILE} is not set)"


def refusal_of(code: int, message: str) -> Refusal:
    """The kind of a google.rpc.Status, with which operations and queued resources say why they failed."""
    if code in (_EXHAUSTED, _UNAVAILABLE) and _NO_MACHINES.search(message):
        return Refusal.STOCKOUT
    if code == _EXHAUSTED:
        return Refusal.QUOTA
    return (
        Refusal.DENIED
        if code in (7, 16)
        else Refusal.INVALID
        if code in (3, 5, 9, 11)
        else Refusal.UNANSWERED
    )


def plain(text: str) -> str:
    """What somebody else says as one line of bounded length, without what was asked."""
    line = " ".join(_CALL.sub("", text, count=1).split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _answered(error: GoogleAPICallError, project: str) -> ProviderError:
    code, words, reason = error.code or 0, plain(str(error.message)), _reason(error)
    if code == 401:
        return ProviderError(Refusal.DENIED, f"Google does not accept the credentials: {words} ({_LOG_IN})")
    if code == 403:
        return ProviderError(Refusal.DENIED, _denied(words, reason, project))
    if code in (429, 503) and _NO_MACHINES.search(words):
        return ProviderError(Refusal.STOCKOUT, words)
    if code == 429:
        too_often = reason == "RATE_LIMIT_EXCEEDED" or _TOO_MANY_CALLS.search(words)
        return ProviderError(Refusal.UNANSWERED if too_often else Refusal.QUOTA, words)
    if code in (400, 404):
        return ProviderError(Refusal.INVALID, words)
    return ProviderError(Refusal.UNANSWERED, f"{code} {words}")


def _reason(error: GoogleAPICallError) -> str:
    """The word of a google.rpc.ErrorInfo; the client's own way to it fails in older versions."""
    return next(
        (str(each["reason"]) for each in error.details if isinstance(each, dict) and "reason" in each), ""
    )


def _denied(words: str, reason: str, project: str) -> str:
    if "quota project" in words or _PROJECT_OF_GCLOUD in words:
        return (
            "the credentials have no quota project: "
            f"gcloud auth application-default set-quota-project {project}"
        )
    if reason == "SERVICE_DISABLED" or "has not been used in project" in words:
        return (
            f"the Cloud TPU API is off in project {project}: "
            f"gcloud services enable tpu.googleapis.com --project {project}"
        )
    return f"{words} (role roles/tpu.admin in project {project} allows it)"


def status_of(code: int, words: str) -> tuple[Refusal, str]:
    """Kind and words of a google.rpc.Status."""
    message = plain(words) or f"error {code} without a message"
    return refusal_of(code, message), message
