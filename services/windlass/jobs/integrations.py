"""The trackers of experiments that a job reports to, as a request names them. Pure."""

import re
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from windlass.core.errors import InvalidArgument

# A name that is fit for a path of somebody else's API.
Name = Annotated[str, Meta(pattern=r"\A[^/\\#?%:\x00-\x1f\x7f]{1,128}\Z")]
Label = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,128}\Z")]
Tags = Annotated[list[Label], Meta(max_length=50)]
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_DEFAULT_PORTS = {"https": 443, "http": 80}


class Wandb(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Weights & Biases, as OpenAI has it; its key is the project's secret `wandb`."""

    project: Name
    name: Label | None = None
    entity: Name | None = None
    tags: Tags | None = None


class Mlflow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An MLflow server; its token, or the password of `username`, is the project's secret `mlflow`.

    Without `authenticate` it is shown no secret, and needs none.
    """

    tracking_uri: Annotated[str, Meta(max_length=512)]
    experiment: Label
    name: Label | None = None
    tags: Annotated[dict[Name, Label], Meta(max_length=50)] | None = None
    username: Name | None = None
    authenticate: bool = True


class Tensorboard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event file among the job's result files."""


class OfWandb(Struct, frozen=True, kw_only=True, tag_field="type", tag="wandb",
              forbid_unknown_fields=True):  # fmt: skip
    """One entry of `integrations`."""

    wandb: Wandb

    @property
    def secret(self) -> str:
        """The name of the secret that opens it."""
        return "wandb"


class OfMlflow(Struct, frozen=True, kw_only=True, tag_field="type", tag="mlflow",
               forbid_unknown_fields=True):  # fmt: skip
    """One entry of `integrations`."""

    mlflow: Mlflow

    @property
    def secret(self) -> str:
        """The name of the secret that opens it; empty for none."""
        return "mlflow" if self.mlflow.authenticate else ""


class OfTensorboard(Struct, frozen=True, kw_only=True, tag_field="type", tag="tensorboard",
                    forbid_unknown_fields=True, omit_defaults=True):  # fmt: skip
    """One entry of `integrations`."""

    tensorboard: Tensorboard | None = None
    secret = ""


Integration = OfWandb | OfMlflow | OfTensorboard


def parse(value: Any) -> list[Integration]:
    """Typed entries of a JSON array; raises InvalidArgument that names the field."""
    try:
        entries = msgspec.convert(value, list[Integration])
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from error
    kinds = [kind_of(entry) for entry in entries]
    for index, kind in enumerate(kinds):
        if kind in kinds[:index]:
            at = f"integrations.{index}.type"
            raise InvalidArgument(f"{at}: one {kind} integration is enough.", param=at)
    return entries


def kind_of(entry: Integration) -> str:
    """`wandb`, `mlflow` or `tensorboard`."""
    return str(entry.__struct_config__.tag)


def _refusal(said: str) -> InvalidArgument:
    """What msgspec said, by the field that is at fault: `integrations.0.wandb.project`."""
    reason, _, at = said.partition(" - at ")
    path = re.sub(r"\[(\w+)\]", r".\1", at.rpartition("$")[2].rstrip("`"))
    field = re.search(r"field `(\w+)`", reason)
    param = f"integrations{path}{f'.{field[1]}' if field else ''}"
    if "regex" in reason:
        reason = "1 to 128 characters, in a name none of / \\ # ? % :"
    return InvalidArgument(f"{param}: {reason}.", param=param)


def origin(url: str) -> str:
    """Scheme, host and port of a URL in one spelling; raises ValueError."""
    parts = urlsplit(url)
    scheme, host, port = parts.scheme, parts.hostname, parts.port
    if scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        raise ValueError("not a URL of http or https")
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" + (f":{port}" if port not in (None, _DEFAULT_PORTS[scheme]) else "")


def destination(url: str, allowed: Sequence[str], *, param: str) -> str:
    """A URL that may be talked to, without a slash at its end; raises InvalidArgument."""
    try:
        found, parts = origin(url), urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"{param} is not a URL of http or https.", param=param) from error
    path = parts.path.rstrip("/")
    plain = _PATH.fullmatch(path) and not {".", ".."} & set(path.split("/"))
    if not plain or parts.query or parts.fragment:
        raise InvalidArgument(f"{param} is a host and a plain path.", param=param)
    if found not in {origin(one) for one in allowed}:
        raise InvalidArgument(
            f"{param}: this installation does not let jobs report to {found}; an operator "
            "allows it with tracking.allowed.",
            reason="tracker_not_allowed",
            param=param,
        )
    return found + path
