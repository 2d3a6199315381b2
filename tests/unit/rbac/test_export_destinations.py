"""Destinations: what an organization may name, and that the server's own networks are not among."""

from ipaddress import ip_network
from typing import Any

import pytest

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.core.outbound.urls import AddressRules
from windlass.rbac.exports.destinations import checked

PUBLIC = AddressRules((), allow_http=False)
BUCKET = {
    "kind": "bucket", "url": "https://s3.example.com", "bucket": "logs", "access_key_id": "AK",
    "secret_access_key": b"s",
}  # fmt: skip


def asked(**fields: Any) -> pb.CreateAuditDestinationRequest:
    return pb.CreateAuditDestinationRequest(**fields)


def test_defaults() -> None:
    made = checked(asked(**BUCKET, prefix="a/b"), PUBLIC)
    assert (made.name, made.prefix, made.region) == ("s3.example.com", "a/b/", "us-east-1")
    hook = checked(asked(kind="webhook", url="https://example.com/x?y=z", name="n"), PUBLIC)
    assert (hook.name, hook.prefix) == ("n", "")
    assert checked(asked(kind="syslog", url="tls://log.example.com:6514"), PUBLIC).name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"kind": "ftp", "url": "https://example.com"}, "kind"),
        ({"kind": "webhook", "url": "http://example.com"}, "url"),
        ({"kind": "webhook", "url": "https://127.0.0.1/"}, "url"),
        ({"kind": "webhook", "url": "https://169.254.169.254/"}, "url"),
        ({"kind": "webhook", "url": "https://u:p@example.com"}, "url"),
        ({"kind": "webhook", "url": "https://example.com", "bucket": "b"}, "bucket"),
        ({"kind": "webhook", "url": "https://example.com", "secret_access_key": b"s"},
         "secret_access_key"),
        ({"kind": "webhook", "url": "https://example.com", "name": "a\nb"}, "name"),
        ({"kind": "syslog", "url": "tcp://log.example.com:514"}, "url"),
        ({"kind": "syslog", "url": "tls://log.example.com"}, "url"),
        ({"kind": "syslog", "url": "tls://log.example.com:6514/x"}, "url"),
        ({"kind": "syslog", "url": "tls://10.0.0.1:6514"}, "url"),
        ({**BUCKET, "url": "https://s3.example.com/path"}, "url"),
        ({**BUCKET, "bucket": "../x"}, "bucket"),
        ({**BUCKET, "bucket": "a..b"}, "bucket"),
        ({**BUCKET, "prefix": "../x"}, "prefix"),
        ({**BUCKET, "prefix": "a//b"}, "prefix"),
        ({**BUCKET, "prefix": "a b"}, "prefix"),
        ({**BUCKET, "prefix": "a=b"}, "prefix"),
        ({**BUCKET, "prefix": "a/" * 400}, "prefix"),
        ({**BUCKET, "region": "a/b"}, "region"),
        ({**BUCKET, "access_key_id": ""}, "access_key_id"),
        ({**BUCKET, "access_key_id": "a\r\nx: y"}, "access_key_id"),
        ({**BUCKET, "secret_access_key": b""}, "secret_access_key"),
        ({**BUCKET, "secret_access_key": "é".encode()}, "secret_access_key"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked(asked(**fields), PUBLIC)
    assert refused.value.param == param


def test_an_operator_may_allow_networks_of_its_own() -> None:
    own = AddressRules((ip_network("10.0.0.0/8"),), allow_http=True)
    assert checked(asked(kind="syslog", url="tcp://10.0.0.1:514"), own).url
