"""Destinations of exports, and what one may be; pure."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.bounds import SECRET_BYTES, WEBHOOK_NAME_LENGTH
from windlass.core.errors import InvalidArgument
from windlass.core.outbound.urls import AddressRules

WEBHOOK, BUCKET, SYSLOG = "webhook", "bucket", "syslog"
KINDS = (WEBHOOK, BUCKET, SYSLOG)
# A bucket's name goes into paths, and so does a prefix, as it is.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)*")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_ACCESS_KEY = re.compile(r"[!-~]{1,256}")
PREFIX_LENGTH = 512
_OF_BUCKETS = ("bucket", "prefix", "region", "access_key_id", "secret_access_key")


@dataclass(frozen=True, slots=True)
class Destination:
    """A receiver of an organization's events; without the secret."""

    id: str
    organization_id: str
    name: str
    kind: str
    url: str
    bucket: str
    prefix: str
    region: str
    access_key_id: str
    created_at: int

    @property
    def host(self) -> str:
        """The host of the URL."""
        return urlsplit(self.url).hostname or ""


def checked(
    request: pb.CreateAuditDestinationRequest, rules: AddressRules
) -> pb.CreateAuditDestinationRequest:
    """The request with its defaults; raises InvalidArgument that names the field."""
    if request.kind not in KINDS:
        raise InvalidArgument(f"kind must be one of {', '.join(KINDS)}.", param="kind")
    made = pb.CreateAuditDestinationRequest()
    made.CopyFrom(request)
    if request.kind == SYSLOG:
        parts = rules.admit(request.url, secure="tls", plain="tcp")
        if parts.port is None or parts.path or parts.query:
            raise InvalidArgument("url must be tls://HOST:PORT.", param="url")
    else:
        parts = rules.admit(request.url)
    if request.kind == BUCKET:
        _check_bucket(request, parts.path, parts.query)
        made.prefix = _prefix(request.prefix)
        made.region = request.region or "us-east-1"
    else:
        for name in _OF_BUCKETS:
            if getattr(request, name):
                raise InvalidArgument(f"{name} is for a bucket alone.", param=name)
    made.name = request.name or parts.hostname or ""
    if len(made.name) > WEBHOOK_NAME_LENGTH or not made.name.isprintable():
        raise InvalidArgument(
            f"name must have at most {WEBHOOK_NAME_LENGTH} printable characters.", param="name"
        )
    return made


def _check_bucket(request: pb.CreateAuditDestinationRequest, path: str, query: str) -> None:
    if path not in ("", "/") or query:
        raise InvalidArgument("url must be that of the S3 server, without a path.", param="url")
    if not _BUCKET.fullmatch(request.bucket) or ".." in request.bucket:
        raise InvalidArgument("bucket must be the name of a bucket.", param="bucket")
    if request.region and not _REGION.fullmatch(request.region):
        raise InvalidArgument("region must be the name of a region.", param="region")
    if not _ACCESS_KEY.fullmatch(request.access_key_id):
        raise InvalidArgument(
            "access_key_id must have 1 to 256 printable ASCII characters.", param="access_key_id"
        )
    secret = request.secret_access_key
    if not 1 <= len(secret) <= SECRET_BYTES or not secret.isascii():
        raise InvalidArgument("secret_access_key is missing.", param="secret_access_key")


def _prefix(prefix: str) -> str:
    whole = prefix.rstrip("/") + "/" if prefix else ""
    if len(whole) > PREFIX_LENGTH or not _PREFIX.fullmatch(whole):
        raise InvalidArgument(
            "prefix must be names of letters, digits and ._- with / between them, of at most "
            f"{PREFIX_LENGTH} characters.",
            param="prefix",
        )
    return whole
