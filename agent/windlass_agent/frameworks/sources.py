"""Dataset and model sources of a TrainJob that Kubeflow's own initializers can read.

Other initializers' sources are not checked.
"""

import re
from collections.abc import Iterator

from windlass_agent.frameworks.objects import Object, TrainingRuntime, TrainJobRefusal

# One part of a repository's name, as the Hub takes them.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,61}[A-Za-z0-9]")
_FORMS = {
    "dataset": {
        "hf": "hf://USER/REPOSITORY, or a path in it",
        "s3": "s3://BUCKET/PREFIX",
        "cache": "cache://SCHEMA/TABLE",
    },
    "model": {"hf": "hf://USER/REPOSITORY", "s3": "s3://BUCKET/PREFIX"},
}


def refusals(initializer: Object, runtime: TrainingRuntime) -> Iterator[TrainJobRefusal]:
    """Yields the addresses of a TrainJob's `spec.initializer` that would fail in its pods."""
    for kind, forms in _FORMS.items():
        given = initializer.get(kind)
        uri = given.get("storageUri") if isinstance(given, dict) else None
        if not isinstance(uri, str) or not _is_kubeflows(kind, runtime):
            continue
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in forms:
            wanted = " or ".join(f"{name}://" for name in forms)
            message = f"{uri!r} does not begin with {wanted}, which the runtime's initializer reads"
        elif not _can_be_read(kind, scheme, rest):
            message = f"{uri!r} is not of the form {forms[scheme]}"
        else:
            continue
        yield TrainJobRefusal(f"spec.initializer.{kind}.storageUri", message)


def _is_kubeflows(kind: str, runtime: TrainingRuntime) -> bool:
    """Returns True if the image is Kubeflow's, in whatever registry it is kept."""
    name = runtime.initializers.get(kind, "").partition("@")[0].rpartition("/")[2]
    return name.partition(":")[0] == f"{kind}-initializer"


def _can_be_read(kind: str, scheme: str, rest: str) -> bool:
    first, *more = rest.split("/")
    if scheme == "s3":
        return _BUCKET.fullmatch(first) is not None
    # A repository of a model may have no user, such as `gpt2`; a dataset's needs one.
    is_named = all(_PART.fullmatch(part) for part in (first, *more[:1]))
    if kind == "model":
        return is_named and len(more) <= 1
    return is_named and len(more) >= 1
