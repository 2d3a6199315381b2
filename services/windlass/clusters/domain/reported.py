"""Reports of agents on workloads, with texts that every owner can store; pure."""

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.workload_phases import is_possible

# The end of a guest's logs is the longest.
MAX_TEXT = 64 * 1024
MAX_SENTENCE = 4000
_LONG = frozenset({"log_tail"})


def bound_texts(message: Message) -> None:
    """Shortens every text of a message, and replaces NUL, which no column of Postgres holds."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                bound_texts(inner)
        elif field.type == FieldDescriptor.TYPE_STRING:
            most = MAX_TEXT if field.name in _LONG else MAX_SENTENCE
            if field.is_repeated:
                value[:] = [_bounded(text, most) for text in value]
            else:
                setattr(message, field.name, _bounded(value, most))


def bound_load(status: pb.WorkloadStatus) -> None:
    """Takes back a load that cannot be: one that is not known, rather than one of zero."""
    if status.phase != pb.PHASE_RUNNING or not is_possible(status.load):
        status.ClearField("load")


def _bounded(text: str, most: int) -> str:
    return text[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")
