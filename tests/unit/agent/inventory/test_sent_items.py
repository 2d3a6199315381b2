"""Items are sent once; a listener that applies every batch has the whole inventory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.inventory import sent_items
from windlass_agent.inventory.sent_items import LARGEST_ITEM, MAX_BYTES, MAX_ITEMS, SentItems

worlds = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3), max_size=8),
    min_size=1,
    max_size=8,
)


def item(key: str, value: int) -> pb.InventoryItem:
    return pb.InventoryItem(key=key, priority_class=pb.PriorityClass(name=key, value=value))


@given(worlds, st.data())
def test_whoever_hears_all_batches_knows_the_world(
    steps: list[dict[str, int]], data: st.DataObject
) -> None:
    sent, known = SentItems(), dict[str, int]()
    for world in steps:
        items = {key: item(key, value) for key, value in world.items()}
        for batch in sent.news(items):
            if data.draw(st.booleans()):
                # Lost on the way, and so are those after it.
                break
            for key in batch.gone:
                del known[key]
            known.update({one.key: one.priority_class.value for one in batch.items})
            sent.told(batch)
    last = {key: item(key, value) for key, value in steps[-1].items()}
    for batch in sent.news(last):
        for key in batch.gone:
            del known[key]
        known.update({one.key: one.priority_class.value for one in batch.items})
        sent.told(batch)
    assert known == steps[-1]
    assert list(sent.news(last)) == []


def test_a_batch_is_bounded_in_number_and_size() -> None:
    small = {str(at): item(str(at), at) for at in range(2 * MAX_ITEMS + 1)}
    assert [len(one.items) for one in SentItems().news(small)] == [MAX_ITEMS, MAX_ITEMS, 1]
    labels = {f"label-{at}": "x" * 60 for at in range(300)}
    large = {
        str(at): pb.InventoryItem(key=str(at), node=pb.NodeState(name=str(at), labels=labels))
        for at in range(100)
    }
    batches = list(SentItems().news(large))
    assert len(batches) > 1
    assert all(sum(one.ByteSize() for one in batch.items) <= MAX_BYTES for batch in batches)


def test_what_the_control_plane_would_refuse_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = pb.InventoryItem(key="huge", missing="x" * LARGEST_ITEM)
    assert [b.items for b in SentItems().news({"huge": huge, "a": item("a", 1)})] == [
        [item("a", 1)]
    ]
    monkeypatch.setattr(sent_items, "MAX_TOLD", 2)
    told = SentItems().news({key: item(key, 1) for key in "abc"})
    assert [one.key for batch in told for one in batch.items] == ["a", "b"]
