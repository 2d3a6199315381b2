"""Exports of the audit log to a real S3 server, whose bucket is an organization's own."""

import json
from ipaddress import ip_network
from typing import Any

import pytest
from tests.contract.conftest import BUCKET, s3_client
from tests.support.environments import swift as servers
from tests.support.environments.swift import Swift

from windlass.core.outbound.receivers import Receivers
from windlass.core.outbound.urls import AddressRules
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.senders.buckets import BucketSender
from windlass.rbac.exports.senders.port import EventBatch, Undelivered


def event(sequence: int) -> dict[str, Any]:
    texts = dict.fromkeys(
        (
            "project_id", "user_id", "key_id", "request_id", "address", "reason", "before", "after",
            "details_salt", "details_digest",
        ),
        "",
    )  # fmt: skip
    return {
        **texts, "id": f"audit_{sequence}", "at_ms": 1, "organization_id": "org-a",
        "action": "s/Do", "resource": "é\n", "outcome": "OK", "repeats": 0,
        "sequence": sequence, "hash": b"h",
    }  # fmt: skip


async def test_a_batch_is_an_object(swift: Swift) -> None:
    rules = AddressRules((ip_network("127.0.0.0/8"),), allow_http=True)
    receivers = Receivers(rules)
    sender = BucketSender(receivers)
    whole = Destination(
        "d", "org-a", "d", "bucket", swift.url, BUCKET, "audit/a-1/", servers.REGION,
        servers.ACCESS_KEY, 1,
    )  # fmt: skip
    batch, secret = EventBatch([event(3), event(4)]), servers.SECRET_KEY.encode()
    for _ in range(2):
        await sender.send(whole, secret, batch)
    client = s3_client(swift)
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="audit/a-1/")["Contents"]
    name = f"audit/a-1/org-a/{3:020d}-{4:020d}.jsonl"
    assert [one["Key"] for one in listed] == [name]
    body = client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
    told = [json.loads(one) for one in body.splitlines()]
    assert [one["metadata"]["sequence"] for one in told] == [3, 4]
    with pytest.raises(Undelivered, match="status 403"):
        await sender.send(whole, b"wrong", batch)
    await receivers.close()
