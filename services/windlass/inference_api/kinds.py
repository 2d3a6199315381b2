"""Checks of bodies, and habits of answers, by the kind of the engine that gets them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from windlass.inference_api import adopted, llamacpp, requests, sglang, vllm


@dataclass(frozen=True, slots=True)
class BodyCheck:
    """The check of the bodies for engines of one kind, and what else they need."""

    # Takes the route and the body; raises ApiError.
    refuse: Callable[[str, bytes], None]
    # The engine makes the same check: ours only saves a start in vain.
    repeated: bool
    # It gets a salt, whatever its agent says that it can do.
    salted: bool = False
    # Some of its models read images.
    images: bool = False
    # Usage in a chunk is of the chunk's own answer, not of all of the request.
    counts_each_choice: bool = False


def body_check(kind: str) -> BodyCheck:
    """Returns the check for a kind of engine; of one that is not known here, the strict one."""
    return _KINDS.get(kind, _STRICT)


_STRICT = BodyCheck(partial(requests.check, strict=True), repeated=False)
_KINDS = {
    "adopted": BodyCheck(adopted.check, repeated=False),
    "adopted-vllm": BodyCheck(vllm.check, repeated=False, salted=True, counts_each_choice=True),
    "builtin": BodyCheck(requests.check, repeated=True),
    "llamacpp": BodyCheck(llamacpp.check, repeated=False, salted=True),
    "sglang": BodyCheck(sglang.check, repeated=False, salted=True, counts_each_choice=True),
    "vllm": BodyCheck(
        vllm.check, repeated=False, salted=True, images=True, counts_each_choice=True
    ),
}
