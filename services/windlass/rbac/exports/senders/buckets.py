"""Puts batches into a bucket of an S3 server, each an object.

The request is signed by botocore and sent by our own connections, which reach public addresses
alone: boto3 would connect to wherever a tenant's URL leads.
"""

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from windlass.core.outbound.receivers import Receivers, Unreachable
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.senders.port import EventBatch, Undelivered


class BucketSender:
    """The bucket has a batch when the server says so; the same batch is the same object."""

    def __init__(self, receivers: Receivers):
        self._receivers = receivers

    async def send(self, destination: Destination, secret: bytes, batch: EventBatch) -> None:
        """See ExportSender.send."""
        body = batch.lines
        name = f"{destination.prefix}{destination.organization_id}/{batch.span}.jsonl"
        url = f"{destination.url.rstrip('/')}/{destination.bucket}/{name}"
        request = AWSRequest(
            "PUT", url, headers={"Content-Type": "application/x-ndjson"}, data=body
        )
        credentials = Credentials(destination.access_key_id, secret.decode())
        S3SigV4Auth(credentials, "s3", destination.region).add_auth(request)
        try:
            status = await self._receivers.send(
                destination.organization_id, "PUT", url, body, dict(request.headers)
            )
        except Unreachable as error:
            raise Undelivered(f"{error}") from error
        if status != 200:
            raise Undelivered(f"the S3 server's response had status {status}")
