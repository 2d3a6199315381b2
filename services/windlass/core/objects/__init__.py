"""The object store: content of files and artifacts of models, in a folder or in S3.

May import the modules of the kernel and `core.config`; never `core.db`, nor `core.rpc`.
"""

from windlass.core.objects.filesystem import FilesystemStore
from windlass.core.objects.http import ObjectRoutes
from windlass.core.objects.opening import open_store
from windlass.core.objects.port import (
    InvalidKey,
    ObjectInfo,
    ObjectMismatch,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    ObjectTooLarge,
    SignatureInvalid,
    StorageFull,
    StoredObject,
    StoreUnavailable,
    validate_key,
)

__all__ = [
    "FilesystemStore",
    "InvalidKey",
    "ObjectInfo",
    "ObjectMismatch",
    "ObjectNotFound",
    "ObjectRoutes",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectTooLarge",
    "SignatureInvalid",
    "StorageFull",
    "StoreUnavailable",
    "StoredObject",
    "open_store",
    "validate_key",
]
