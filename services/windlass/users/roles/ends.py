"""The end of roles that were given until a moment."""

import time

from windlass.core.db.leases import tolerated
from windlass.core.db.wake import Wake
from windlass.users.domain import KEYS_TOPIC
from windlass.users.roles.store import RoleStore

# Wakes who waits for the next end.
ROLES_TOPIC = "users.roles"
# For a change whose server was killed before it told.
LONGEST_SECONDS = 60.0
SHORTEST_SECONDS = 0.05
# After a failure: the database is away, for example.
RETRY_SECONDS = 1.0


async def end_roles(roles: RoleStore, wake: Wake) -> None:
    """Takes each role from its member when its time is up, until cancelled.

    Look-ups leave out what has ended; this is for keys that others hold in memory.
    """
    listener = wake.listen(ROLES_TOPIC)
    while True:
        left = RETRY_SECONDS
        async with tolerated(ROLES_TOPIC):
            if await roles.end_expired():
                wake.touch(KEYS_TOPIC)
            end = await roles.next_end()
            left = end - time.time() if end else LONGEST_SECONDS
        await listener.wait(min(max(left, SHORTEST_SECONDS), LONGEST_SECONDS))
