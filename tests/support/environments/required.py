"""Machine requirements of tests: skipped without them, or failed where nothing may be skipped."""

import os
from typing import NoReturn

import pytest

# As in CI, which prepares its machine.
REQUIRED = os.environ.get("REQUIRE_CLUSTER", "") not in ("", "0")


def lacking(what: str) -> NoReturn:
    """Skips the test, saying what is missing; under REQUIRE_CLUSTER fails it."""
    if REQUIRED:
        pytest.fail(f"REQUIRE_CLUSTER is set, and this would be skipped: {what}")
    pytest.skip(what)
