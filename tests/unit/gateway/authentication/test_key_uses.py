"""Uses of keys until they are told: many of them take little room."""

import tracemalloc
from ipaddress import ip_network
from typing import Any

from windlass.api.users.v1 import users_pb2 as pb
from windlass.core.addresses import ClientAddresses
from windlass.core.rpc.auth import Principal
from windlass.gateway.authentication.origins import KeyOrigins
from windlass.key_cache import KnownKey

KEYS = 200
# As long as a head may be.
LIES = b"198.51.100.1, " * 2000


class Users:
    """Hears of uses."""

    def __init__(self) -> None:
        self.uses: dict[str, str] = {}

    async def RecordKeyUse(self, request: pb.RecordKeyUseRequest, timeout: float) -> None:
        self.uses |= {one.key_id: one.address for one in request.uses}


async def test_a_long_list_of_proxies_is_not_kept() -> None:
    users: Any = Users()
    origins = KeyOrigins(ClientAddresses([ip_network("10.0.0.0/8")]), users)
    tracemalloc.start()
    try:
        for number in range(KEYS):
            known = KnownKey(f"key_{number}", Principal("org"), 0.0)
            said = LIES + b"203.0.113.%d" % number
            origins.admit(known, "10.0.0.1", {b"x-forwarded-for": said}, b"")
        assert tracemalloc.get_traced_memory()[0] < KEYS * 4000
    finally:
        tracemalloc.stop()
    await origins.tell()
    assert users.uses == {f"key_{number}": f"203.0.113.{number}" for number in range(KEYS)}
