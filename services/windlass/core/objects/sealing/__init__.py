"""Objects of projects that have a key of their own: sealed on their way to the store.

May import `core.errors` and the modules of `core.objects`.
"""

from windlass.core.objects.sealing.keys import ObjectKey, ObjectKeys, project_of
from windlass.core.objects.sealing.store import SealedStore

__all__ = ["ObjectKey", "ObjectKeys", "SealedStore", "project_of"]
