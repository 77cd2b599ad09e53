"""Errors of the API in its format."""

from __future__ import annotations

from typing import Any

_HTTP = {
    "INVALID_ARGUMENT": (400, 3),
    "FAILED_PRECONDITION": (400, 9),
    "UNAUTHENTICATED": (401, 16),
    "PERMISSION_DENIED": (403, 7),
    "NOT_FOUND": (404, 5),
    "ALREADY_EXISTS": (409, 6),
    "ABORTED": (409, 10),
    "RESOURCE_EXHAUSTED": (429, 8),
    "CANCELLED": (499, 1),
    "INTERNAL": (500, 13),
    "UNIMPLEMENTED": (501, 12),
    "UNAVAILABLE": (503, 14),
}


class ApiError(Exception):
    """An error. `status` is its canonical name (`NOT_FOUND`), which has an HTTP code and an RPC code."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def http_code(self) -> int:
        return _HTTP[self.status][0]

    def body(self) -> dict[str, Any]:
        """Return the body of the answer to a refused call."""
        return {"error": {"code": self.http_code, "message": self.message, "status": self.status}}

    def rpc_status(self) -> dict[str, Any]:
        """Return the google.rpc.Status with which an operation or a queued resource reports its failure."""
        return {"code": _HTTP[self.status][1], "message": self.message}


def not_found(name: str) -> ApiError:
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found")


def already_exists(name: str) -> ApiError:
    return ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists")


def over_quota(limit: int, zone: str) -> ApiError:
    return ApiError(
        "RESOURCE_EXHAUSTED",
        f"Quota limit 'TPUsPerProjectPerZoneForTPUAPI' has been exceeded. Limit: {limit} in zone {zone}.",
    )


def no_capacity(zone: str) -> ApiError:
    return ApiError(
        "RESOURCE_EXHAUSTED",
        f'There is no more capacity in the zone "{zone}"; you can try in another zone',
    )
