"""Owns the rate limits of projects: requests and tokens per minute, and requests at once.

Gateways draw parts of a project's allowance from the usage service and spend them without a call.
May import the contract, the kernel and the gateway's errors.
"""

from windlass.gateway.limits.limiter import Limiter

__all__ = ["Limiter"]
