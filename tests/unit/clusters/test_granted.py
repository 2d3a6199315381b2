"""Bounds on what an agent reports of its machine."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass.bounds import MAX_MODEL_VERSIONS
from windlass.clusters.domain import policy
from windlass.core.ids import is_identifier

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
RESOURCES = st.builds(Resources, gpus=INT32, cpus=INT32, memory_bytes=INT64)
SHARES = st.builds(pb.EngineShare, gpus=INT32, cpu_millis=INT64, memory_bytes=INT64)
DEVICES = st.builds(
    pb.Device, id=st.text(max_size=300), product=st.text(max_size=300), memory_bytes=INT64,
    used=st.booleans(),
)  # fmt: skip
SHAPES = st.builds(
    pb.NodeShape, resource=st.text(max_size=300), product=st.text(max_size=300), devices=INT32,
    device_memory_bytes=INT64, memory_bytes=INT64, nodes=INT32,
    flavors=st.lists(st.text(max_size=300), max_size=12),
)  # fmt: skip
SAID = st.builds(
    pb.Capacity, slots=INT32, gpus=INT32, cpus=INT32, memory_bytes=INT64, used_gpus=INT32,
    used_cpus=INT32, used_memory_bytes=INT64, held_by_engines=RESOURCES,
    devices=st.lists(DEVICES, max_size=80), each_engine=SHARES,
    node_shapes=st.lists(SHAPES, max_size=80),
    model_versions=st.lists(st.one_of(st.text(max_size=200), st.sampled_from(["mv-1", "mv-2"]))),
)  # fmt: skip


@given(said=SAID)
def test_no_number_is_below_nothing_nor_beyond_what_there_is(said: pb.Capacity) -> None:
    found = policy.granted(policy.OperatorPolicy(executor=policy.PROCESS), said)
    held = found.held_by_engines
    assert 0 <= held.gpus <= found.gpus
    assert 0 <= found.used_gpus <= found.gpus
    assert 0 <= held.cpus <= found.cpus
    assert 0 <= found.used_cpus <= found.cpus
    assert 0 <= held.memory_bytes <= found.memory_bytes <= policy.MAX_BYTES
    assert 0 <= found.used_memory_bytes <= found.memory_bytes
    assert len(found.devices) <= policy.MAX_DEVICES
    for device in found.devices:
        assert 0 <= device.memory_bytes <= policy.MAX_BYTES
        assert (device.id + device.product).isprintable()
        assert max(len(device.id), len(device.product)) <= policy.MAX_NAME
    assert len(found.node_shapes) <= policy.MAX_NODE_SHAPES
    for shape in found.node_shapes:
        assert min(shape.devices, shape.nodes) >= 0
        assert 0 <= shape.device_memory_bytes <= policy.MAX_BYTES
        assert 0 <= shape.memory_bytes <= policy.MAX_BYTES
        words = [shape.resource, shape.product, *shape.flavors]
        assert all(len(one) <= policy.MAX_NAME and one.isprintable() for one in words)
        assert len(shape.flavors) <= policy.MAX_FLAVORS
    each = found.each_engine
    assert min(each.gpus, each.cpu_millis, each.memory_bytes) >= 0
    assert each.memory_bytes <= policy.MAX_BYTES
    assert all(map(is_identifier, found.model_versions))


def test_versions_of_models_are_few_each_once_and_those_of_a_cluster_for_engines() -> None:
    ids = [f"mv-{one}" for one in range(2 * MAX_MODEL_VERSIONS)]
    said = pb.Capacity(model_versions=["mv-0", "../../mv-1", *ids])
    found = policy.granted(policy.OperatorPolicy(), said)
    assert found.model_versions == ids[: MAX_MODEL_VERSIONS - 2]
    trains = policy.OperatorPolicy(roles=(policy.JOBS,))
    assert not policy.granted(trains, said).model_versions
