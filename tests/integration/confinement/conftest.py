"""Fixtures of the tests of walls."""

import pytest
from tests.support.environments.sandbox import needed_sandbox

from windlass.confinement import Confinement, confinement


@pytest.fixture(scope="module")
def walled() -> Confinement:
    needed_sandbox()
    return confinement("required")
