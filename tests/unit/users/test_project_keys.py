"""A keeper that does not answer is not asked by every request of its project."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from windlass.core.errors import Unavailable
from windlass.core.keyring import Keyring
from windlass.users.encryption.domain import DataKey
from windlass.users.encryption.project_keys import ProjectDataKeys

KEY = DataKey("dkey_1", "org_1", "proj_1", "ekm_1", "wrapped", b"mark")


class Keeper:
    def __init__(self) -> None:
        self.asked = 0
        self.is_away = True

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        self.asked += 1
        if self.is_away:
            raise OSError("it does not answer")
        return b"k" * 32


async def _current(project_id: str) -> DataKey:
    return KEY


async def _external(organization_id: str, key_id: str) -> Any:
    return None


async def test_a_failure_is_remembered_for_seconds() -> None:
    keeper, now = Keeper(), 0.0
    keys = ProjectDataKeys(
        cast(Any, SimpleNamespace(current=_current)),
        cast(Any, SimpleNamespace(get=_external)),
        cast(Any, SimpleNamespace(of=lambda key: keeper)),
        Keyring(cast(Any, None), b"r" * 32, []),
        seconds=60,
        clock=lambda: now,
    )
    for _ in range(10):
        with pytest.raises(Unavailable, match="does not answer"):
            await keys.sealing("proj_1")
    assert keeper.asked == 1
    keeper.is_away = False
    now = 5.1
    assert (await keys.sealing("proj_1")).key == KEY
    assert keeper.asked == 2
