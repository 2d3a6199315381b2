"""What a picker is asked, and what of its answers counts."""

import json
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.picker.v1 import ext_proc_pb2 as pb
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica
from windlass_agent.tunnel.picking.choice import UnreadBody, able, hint, named, read_body
from windlass_agent.tunnel.picking.ext_proc import PIECE_BYTES, destination, request_parts

REPLICAS = [
    ServingReplica("eng-1", "team-a", "toy", "10.0.0.1", {"ft:a": "mv-1"}),
    ServingReplica("eng-2", "team-a", "toy", "10.0.0.2", {"ft:a": "mv-2", "ft:b": "mv-3"}),
    ServingReplica("eng-3", "team-a", "toy", "fd00::3", {"ft:a": "mv-1"}),
]


def ids(model: str) -> list[str]:
    return [one.workload_id for one in able(REPLICAS, model).values()]


def test_an_adapter_is_answered_by_those_that_have_its_very_version() -> None:
    assert ids("toy") == ["eng-1", "eng-2", "eng-3"]
    assert ids("ft:a") == ["eng-1", "eng-3"]
    # The gateway's own choice has it no more.
    assert ids("ft:b") == ids("other") == []


@pytest.mark.parametrize(
    ("endpoints", "found"),
    [
        ("10.0.0.2:8080", "eng-2"),
        ("10.0.0.9:1,  10.0.0.2:1,10.0.0.1:1", "eng-2"),
        ("[fd00::3]:8080", "eng-3"),
        ("[FD00:0:0::3]:8080", "eng-3"),
        ("fd00::3:8080", "eng-3"),
        ("10.0.0.2", None),
        ("10.0.0.2:x", None),
        ("010.0.0.2:1", None),
        (",".join(["10.0.0.9:1"] * 16 + ["10.0.0.2:1"]), None),
        ("", None),
    ],
)
def test_the_first_endpoint_that_may_answer_counts(endpoints: str, found: str | None) -> None:
    replica = named(endpoints, able(REPLICAS, "toy"))
    assert (replica.workload_id if replica else None) == found


@given(st.text() | st.lists(st.ip_addresses().map(str)).map(",".join))
def test_whatever_it_says_names_no_other(endpoints: str) -> None:
    fit = able(REPLICAS, "ft:a")
    assert named(endpoints, fit) in (None, *fit.values())


@given(st.binary())
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        model, shown = read_body(body)
    except UnreadBody:
        return
    assert isinstance(model, str)
    assert isinstance(json.loads(shown), dict)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"model": 1}', b"{}", b'{"model": "\xff"}'])
def test_a_body_that_names_no_model_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadBody):
        read_body(body)


def test_the_salt_alone_is_changed() -> None:
    body = b'{"model": "toy", "cache_salt": "secret", "prompt":  "the \\u0071uick"}'
    model, shown = read_body(body)
    assert model == "toy"
    assert b"secret" not in shown
    assert b'"the \\u0071uick"' in shown
    assert read_body(shown)[1] != shown, "a digest again, of what it takes for a salt"


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_body_is_told_in_pieces_with_an_end(size: int) -> None:
    fit = {ip_address("10.0.0.1"): REPLICAS[0]}
    head, *rest = request_parts("/v1/x", "req-1", b"x" * size, hint(fit, 8080))
    assert head.request_headers.headers.headers[1].raw_value == b"/v1/x"
    assert sum(len(one.request_body.body) for one in rest) == size
    assert [one.request_body.end_of_stream for one in rest] == [False] * (len(rest) - 1) + [True]
    # It counts where the body ends.
    (told,) = rest[-1].metadata_context.filter_metadata["envoy.lb.subset_hint"].fields.values()
    assert [one.string_value for one in told.list_value.values] == ["10.0.0.1:8080"]


@given(st.binary(max_size=200))
def test_whatever_an_answer_has_is_text_or_refused(raw: bytes) -> None:
    answer = pb.ProcessingResponse()
    answer.request_headers.response.header_mutation.set_headers.add(
        header=pb.HeaderValue(key="X-Gateway-Destination-Endpoint", raw_value=raw)
    )
    assert isinstance(destination(answer), str)
    answer = pb.ProcessingResponse()
    answer.dynamic_metadata.update({"envoy.lb": raw.hex(), "x": {"y": None}})
    assert destination(answer) == ""
