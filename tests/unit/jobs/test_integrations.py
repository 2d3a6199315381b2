"""Validation of a job's integrations, for any text that a tenant could write."""

import contextlib
import json
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.core.errors import InvalidArgument
from windlass.jobs.tracking.destinations import destination
from windlass.jobs_api.request import decode


def parse(value: object) -> None:
    """Raises InvalidArgument for integrations that no job can have."""
    body = {"model": "m", "training_file": "f", "integrations": value}
    decode(json.dumps(body).encode())


ALLOWED = ["https://api.wandb.ai", "http://10.0.0.5:5000"]
pieces = st.sampled_from(
    ["https://", "http://", "api.wandb.ai", "10.0.0.5", ":5000", ":443", "/", "..", "@", "\\", "?",
     "#", "%2f", "evil.test", "\n", "[::1]", "mlflow", " ", "é"]
)  # fmt: skip


@given(st.lists(pieces, max_size=7).map("".join) | st.text(max_size=60))
@example("https://api.wandb.ai/a/b/")
@example("https://api.wandb.ai\\@evil.test/")
def test_nothing_but_an_allowed_origin_comes_out(url: str) -> None:
    found = ""
    with contextlib.suppress(InvalidArgument):
        found = destination(url, ALLOWED, param="uri")
    if not found:
        return
    parts = urlsplit(found)
    assert f"{parts.scheme}://{parts.netloc}" in ALLOWED
    assert not parts.query
    assert ".." not in parts.path
    assert not found.endswith("/")


def test_an_origin_has_one_spelling() -> None:
    assert destination("HTTPS://API.wandb.ai:443", ALLOWED, param="u") == "https://api.wandb.ai"
    assert destination("http://10.0.0.5:5000/ml/", ALLOWED, param="u") == "http://10.0.0.5:5000/ml"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "wandb", "mlflow", "project", "tags", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=3))
def test_whatever_comes_is_typed_or_refused_by_its_field(value: object) -> None:
    params = ["integrations"]
    with contextlib.suppress(InvalidArgument):
        try:
            parse(value)
        except InvalidArgument as error:
            params.append(str(error.param))
            raise
    assert all(param.startswith("integrations") for param in params)


@pytest.mark.parametrize("name", ["a/b", "a%2fb", "", "x" * 129, "a\nb", "a:b"])
def test_a_name_is_fit_for_a_path(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse([{"type": "wandb", "wandb": {"project": name}}])
    assert refused.value.param == "integrations.0.wandb.project"
