"""Weight versions in the object store.

May import the kernel and `windlass.weight_versions`.
"""

from windlass.weight_objects.medium import ObjectMedium

__all__ = ["ObjectMedium"]
