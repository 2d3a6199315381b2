"""Items last sent to the control plane, and the changes since."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry

# What the control plane takes of one cluster.
MAX_TOLD = 50_000
LARGEST_ITEM = 32 << 10
# Of one message; a quarter of what gRPC takes by default.
MAX_ITEMS = 500
MAX_BYTES = 1 << 20

log = telemetry.logger("inventory")


@dataclass(frozen=True)
class Batch:
    """News that fit one message, and how they are known as sent."""

    items: list[pb.InventoryItem] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    digests: dict[str, bytes] = field(default_factory=dict)


class SentItems:
    """Remembers a digest of each item that was told; the items themselves are not kept."""

    def __init__(self) -> None:
        self._told: dict[str, bytes] = {}

    def forget(self) -> None:
        """Forgets what was sent, so that everything is sent again."""
        self._told.clear()

    def news(self, items: Mapping[str, pb.InventoryItem]) -> Iterator[Batch]:
        """Yields what differs from what was told, in batches that are bounded in number and size.

        Items beyond what the control plane takes, the last ones, are left out.
        """
        gone = sorted(self._told.keys() - items.keys())
        for start in range(0, len(gone), MAX_ITEMS):
            yield Batch(gone=gone[start : start + MAX_ITEMS])
        batch, size = Batch(), 0
        for key, item in islice(items.items(), MAX_TOLD):
            data = item.SerializeToString(deterministic=True)
            if len(data) > LARGEST_ITEM:
                log.warning("inventory_item_too_large", key=key, bytes=len(data))
                continue
            digest = blake2b(data, digest_size=12).digest()
            if self._told.get(key) == digest:
                continue
            if batch.items and (len(batch.items) == MAX_ITEMS or size + len(data) > MAX_BYTES):
                yield batch
                batch, size = Batch(), 0
            batch.items.append(item)
            batch.digests[key] = digest
            size += len(data)
        if batch.items:
            yield batch

    def told(self, batch: Batch) -> None:
        """Notes that a batch has arrived."""
        for key in batch.gone:
            self._told.pop(key, None)
        self._told.update(batch.digests)
