"""Rate limit headers and the 429 responses of limits, as OpenAI writes them."""

from windlass.gateway.errors import HttpError

Headers = list[tuple[bytes, bytes]]


REQUESTS, TOKENS = (
    tuple(f"x-ratelimit-{part}-{what}".encode() for part in ("limit", "remaining", "reset"))
    for what in ("requests", "tokens")
)


def bucket_headers(names: tuple[bytes, ...], size: int, level: float) -> Headers:
    """Returns the three headers of a bucket that holds `level` of `size`."""
    return [
        (names[0], b"%d" % size),
        (names[1], b"%d" % max(0.0, level)),
        (names[2], duration(seconds_until(size, size, level))),
    ]


def seconds_until(amount: float, size: int, level: float) -> float:
    """Returns the seconds until a bucket holds an amount."""
    return max(0.0, (min(amount, size) - level) * 60 / size)


def rate_refusal(what: str, size: int, wait_seconds: float, headers: Headers) -> HttpError:
    """Returns the 429 of a rate limit."""
    message = (
        f"Rate limit reached for {what} per minute (limit {size}). "
        f"Please try again in {duration(wait_seconds).decode()}."
    )
    return _too_many(message, wait_seconds, headers)


def concurrency_refusal(limit: int) -> HttpError:
    """Return the 429 of too many requests at once."""
    return _too_many(
        f"Concurrency limit reached: at most {limit} requests of this project may run at "
        "once. Please try again later.",
        1,
        [],
    )


def _too_many(message: str, wait_seconds: float, headers: Headers) -> HttpError:
    said = {name.decode(): value.decode() for name, value in headers}
    said["retry-after"] = str(max(1, round(wait_seconds + 0.5)))
    said["retry-after-ms"] = str(max(1, int(wait_seconds * 1000)))
    return HttpError(
        429, message, kind="rate_limit_error", code="rate_limit_exceeded", headers=said
    )


def duration(seconds: float) -> bytes:
    """Return a span as OpenAI writes it: `12ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return b"%dms" % (seconds * 1000)
    if seconds < 60:
        return b"%gs" % round(seconds, 3)
    return b"%dm%ds" % divmod(int(seconds), 60)
