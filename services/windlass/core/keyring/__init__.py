"""Owns the installation's secrets: the master key, what it seals, and what is derived from it.

One installation has one random root key. The root key is stored in the database, sealed by a
master key that is not: every process brings the same master key and derives from the root
what all of them must agree on. The port of master keys, `WrappingKey`, is that of tenants' own
keys too. May import `core.db`, `core.config`, `core.clock`, `core.killpoints` and
`core.telemetry` only.
"""

from windlass.core.keyring.envelope import Envelope
from windlass.core.keyring.keyring import (
    Keyring,
    check_master_key,
    open_keyring,
    sealing_key,
)
from windlass.core.keyring.masters import KeyringError

# Purpose of what inference seals for a cluster and clusters opens for its agent.
STACK_KEYS = "keys of serving stacks"

__all__ = [
    "STACK_KEYS",
    "Envelope",
    "Keyring",
    "KeyringError",
    "check_master_key",
    "open_keyring",
    "sealing_key",
]
