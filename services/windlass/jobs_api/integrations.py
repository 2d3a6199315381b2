"""The trackers of experiments that a job reports to, as a request names them."""

from typing import Annotated

from msgspec import Meta, Struct

# A name that is fit for a path of somebody else's API.
Name = Annotated[str, Meta(pattern=r"\A[^/\\#?%:\x00-\x1f\x7f]{1,128}\Z")]
Label = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,128}\Z")]
Tags = Annotated[list[Label], Meta(max_length=50)]


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


def kind_of(entry: Integration) -> str:
    """`wandb`, `mlflow` or `tensorboard`."""
    return str(entry.__struct_config__.tag)
