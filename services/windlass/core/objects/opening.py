"""Makes the object store that the configuration names."""

from pathlib import Path

from windlass.core.config import ObjectsSection
from windlass.core.objects.filesystem import FilesystemStore
from windlass.core.objects.port import ObjectStore


def open_store(
    settings: ObjectsSection, *, root: Path, public_url: str, signing_secret: bytes
) -> ObjectStore:
    """The S3 bucket of `settings`, or the folder `root` whose URLs this gateway serves."""
    if settings.kind == "filesystem":
        return FilesystemStore(root, public_url=public_url, secret=signing_secret)
    # Imported here: boto3 costs a quarter of a second, which a folder need not pay.
    from windlass.core.objects.s3 import S3Store

    return S3Store(
        bucket=settings.bucket,
        prefix=settings.prefix,
        endpoint_url=settings.endpoint_url or None,
        region=settings.region or None,
        access_key_id=settings.access_key_id or None,
        secret_access_key=settings.secret_access_key.get_secret_value() or None,
    )
