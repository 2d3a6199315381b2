"""Memory for images: bounded for all, and for one project, and given back."""

import pytest

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.images.room import PROJECT_BYTES, ROOM_BYTES, ImageRoom


def test_no_project_takes_it_all() -> None:
    room = ImageRoom()
    with room.of("one") as hold, room.of("one") as more:
        hold.take(PROJECT_BYTES - 1)
        more.take(1)
        with pytest.raises(HttpError) as refused:
            more.take(1)
        assert (refused.value.status, refused.value.code) == (503, "too_many_images")
        assert refused.value.headers == {"retry-after": "1"}
        with room.of("other") as others:
            others.take(PROJECT_BYTES)
    with room.of("one") as hold:
        hold.take(PROJECT_BYTES)


def test_all_projects_together_are_bounded() -> None:
    room = ImageRoom()
    holds = [room.of(f"p{number}") for number in range(ROOM_BYTES // PROJECT_BYTES)]
    for hold in holds:
        hold.take(PROJECT_BYTES)
    with pytest.raises(HttpError, match="Too many images"):
        room.of("late").take(1)
    with holds[0]:
        pass
    room.of("late").take(PROJECT_BYTES)
