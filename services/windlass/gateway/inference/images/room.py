"""Memory for requests with images: a short one may name images of megabytes by their URLs."""

from collections import Counter

from windlass.gateway.errors import HttpError

# Of all projects, and of one, in a gateway.
ROOM_BYTES, PROJECT_BYTES = 2**30, 2**28


def too_many_images() -> HttpError:
    """The error for a request with images that comes while too many are under way."""
    return HttpError(
        503,
        "Too many images are on their way to engines; try again.",
        kind="service_unavailable_error",
        code="too_many_images",
        headers={"retry-after": "1"},
    )


class ImageRoom:
    """Bytes that requests with images take at once, by project."""

    def __init__(self) -> None:
        self._taken = Counter[str]()

    def of(self, project_id: str) -> "ImageHold":
        """Returns what a request of a project takes, nothing yet; use it as a context."""
        return ImageHold(self._taken, project_id)


class ImageHold:
    """Bytes that one request takes, given back at the end of the block."""

    __slots__ = ("_bytes", "_project_id", "_taken")

    def __init__(self, taken: Counter[str], project_id: str):
        self._taken = taken
        self._project_id = project_id
        self._bytes = 0

    def take(self, size: int) -> None:
        """Takes bytes; raises HttpError 503 where there are too few."""
        own = self._taken[self._project_id] + size
        if own > PROJECT_BYTES or self._taken.total() + size > ROOM_BYTES:
            raise too_many_images()
        self._taken[self._project_id] = own
        self._bytes += size

    def __enter__(self) -> "ImageHold":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bytes:
            self._taken[self._project_id] -= self._bytes
            if not self._taken[self._project_id]:
                del self._taken[self._project_id]
