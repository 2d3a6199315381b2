"""Settings of the engines of each version, and the choice of a cluster for one; pure.

It imports the domain beside it, and the kernel.
"""

from windlass.inference.places.choosing import CandidateCluster, choose
from windlass.inference.places.quota_room import EngineNeed, QuotaRoom
from windlass.inference.places.version_settings import VersionSettings

__all__ = ["CandidateCluster", "EngineNeed", "QuotaRoom", "VersionSettings", "choose"]
