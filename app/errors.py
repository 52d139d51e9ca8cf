"""Errors in requests to the service, beyond those that the compiler itself raises."""

from __future__ import annotations

from compiler.errors import LimitError, RequestError, TesseraError


class MalformedError(RequestError):
    """The body or a header cannot be read at all."""

    default_code = "malformed_request"


class NotFoundError(RequestError):
    """The thing the URL names does not exist."""

    default_code = "not_found"
    default_hint = "Check the address and the id; what is old may have been removed"


class ConflictError(RequestError):
    """The state of the resource forbids the request."""

    default_code = "conflict"


class TooLargeError(LimitError):
    """The body is larger than what is accepted."""

    default_code = "too_large"


class UnsupportedMediaError(RequestError):
    """The body is of a type that is not accepted here."""

    default_code = "unsupported_media_type"


class KeyRequiredError(RequestError):
    """The request has no key, or one that is not valid."""

    default_code = "key_required"


class ForbiddenError(RequestError):
    """The key does not allow this."""

    default_code = "forbidden"


class QuotaError(LimitError):
    """A limit of the key is reached; the request may be sent again later."""

    default_code = "too_many_requests"

    def __init__(
        self, message: str, *, code: str, actual: int | str, limit: int, hint: str, retry_after_s: int
    ) -> None:
        super().__init__(message, code=code, stage="request", actual=actual, limit=limit, hint=hint)
        self.retry_after_s = retry_after_s


class MisdirectedError(RequestError):
    """The request is for a host that this service is not."""

    default_code = "host_not_allowed"


class OtherSiteError(RequestError):
    """A web page of another site sent the request."""

    default_code = "other_site"


class UnavailableError(TesseraError):
    """Redis or the store does not answer at the moment."""

    default_code = "service_unavailable"
    default_hint = "Try again shortly"


class StoreUnavailableError(UnavailableError):
    """The blob store does not answer, or refuses, at the moment."""

    default_code = "store_unavailable"


class SetupError(TesseraError):
    """The embedded service cannot start on this machine as it is."""

    default_code = "setup"
    default_hint = "Change what is named and start it again; docs/service.md describes the settings"
