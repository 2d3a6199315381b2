"""The object store: content of files and artifacts of models, in a folder or in S3.

Those of projects with a key of their own are sealed (`sealing`). May import the modules of the
kernel and `core.config`; never `core.db`, nor `core.rpc`.
"""

from windlass.core.objects.filesystem import FilesystemStore
from windlass.core.objects.http import ObjectRoutes
from windlass.core.objects.opening import open_store
from windlass.core.objects.port import (
    InvalidKey,
    ObjectDamaged,
    ObjectInfo,
    ObjectMismatch,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    ObjectTooLarge,
    SealingKeyUnavailable,
    SignatureInvalid,
    StorageFull,
    StoredObject,
    StoreUnavailable,
    validate_key,
)
from windlass.core.objects.sealing import ObjectKey, ObjectKeys, SealedStore
from windlass.core.objects.served import ServedStore

__all__ = [
    "FilesystemStore",
    "InvalidKey",
    "ObjectDamaged",
    "ObjectInfo",
    "ObjectKey",
    "ObjectKeys",
    "ObjectMismatch",
    "ObjectNotFound",
    "ObjectRoutes",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectTooLarge",
    "SealedStore",
    "SealingKeyUnavailable",
    "ServedStore",
    "SignatureInvalid",
    "StorageFull",
    "StoreUnavailable",
    "StoredObject",
    "open_store",
    "validate_key",
]
