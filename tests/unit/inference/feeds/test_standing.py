"""Standing of feeds by their projects."""

import pytest

from windlass.api.users.v1 import users_pb2
from windlass.core.errors import FailedPrecondition
from windlass.inference.feeds.standing import require_keeping


def test_a_project_keeps_answers_that_says_so_and_seals_nothing_by_its_own_key() -> None:
    require_keeping(users_pb2.Project(keeps_answers=True))
    for project, reason in (
        (users_pb2.Project(), "zero_data_retention"),
        (users_pb2.Project(keeps_answers=True, external_key_id="ek_1"), "sealed_project"),
    ):
        with pytest.raises(FailedPrecondition) as refused:
            require_keeping(project)
        assert refused.value.reason == reason
