"""Throttle by address for guessed credentials, in bounded memory."""

import time
from collections import OrderedDict
from dataclasses import dataclass

ADDRESSES = 10_000
LONGEST_SECONDS = 60.0
# Without a failure for so long, an address starts anew.
FORGET_SECONDS = 600.0


@dataclass(slots=True)
class _Record:
    failures: int
    failed_at: float
    until: float


class Throttle:
    """Counts failures of addresses; beyond an allowance each wait is twice the last."""

    def __init__(self, *, allowance: int, addresses: int = ADDRESSES):
        self._allowance = allowance
        self._most = addresses
        # The one that failed last is at the end; the others are forgotten first.
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def wait(self, address: str) -> float:
        """Seconds until another attempt of the address is welcome; 0 when it is now."""
        record = self._records.get(address)
        return max(0.0, record.until - time.monotonic()) if record else 0.0

    def fail(self, address: str) -> float:
        """Count a failure; the seconds that the address has to wait now."""
        now = time.monotonic()
        record = self._records.pop(address, None)
        if record is None or now - record.failed_at > FORGET_SECONDS:
            record = _Record(0, now, 0.0)
        record.failures += 1
        record.failed_at = now
        beyond = record.failures - self._allowance
        if beyond > 0:
            record.until = now + min(2.0 ** min(beyond - 1, 16), LONGEST_SECONDS)
        self._records[address] = record
        if len(self._records) > self._most:
            self._records.popitem(last=False)
        return max(0.0, record.until - now)
