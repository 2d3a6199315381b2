"""Keys for objects of projects, as the users service tells them to every process.

May import the contract and the kernel.
"""

from windlass.object_keys.asked import KNOWN_SECONDS, OUTAGE_SECONDS, UsersObjectKeys

__all__ = ["KNOWN_SECONDS", "OUTAGE_SECONDS", "UsersObjectKeys"]
