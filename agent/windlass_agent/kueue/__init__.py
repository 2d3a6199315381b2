"""Kueue's API, as far as Windlass uses it: what it decides, and the quotas it decides by.

Of Kueue 0.16, whose v1beta2 is what it stores; a contract test holds every field used here
against the CRDs of the pinned version.

It imports `kube`, the contract and `windlass.kubernetes`, and nothing else of the agent.
"""

from windlass_agent.kueue.client import Kueue
from windlass_agent.kueue.workload import Condition, Workload

__all__ = ["Condition", "Kueue", "Workload"]
