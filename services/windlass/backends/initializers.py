"""Initializers that fill a TrainJob's workspace before it trains (the names of Kubeflow's SDK)."""

from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, ClassVar

# Where Kubeflow's initializers put a model and a dataset, and where its trainers write.
WORKSPACE = PurePosixPath("/workspace")
# The weights of other frameworks, and pickles.
_OTHER_WEIGHTS = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")


@dataclass
class Download:
    """One thing to get; every field but the address becomes a variable of its container.

    `secret` names a Secret of the TrainJob's namespace that has further variables, such as
    `ACCESS_TOKEN`: what is written in a field stands in the object for all to read.
    """

    scheme: ClassVar[str]

    storage_uri: str
    ignore_patterns: list[str] | None = None
    secret: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.storage_uri.startswith(self.scheme):
            raise ValueError(f"storage_uri: {self.storage_uri!r} does not begin with {self.scheme}")
        if self.scheme == "hf://" and "/" not in self.storage_uri.removeprefix(self.scheme):
            raise ValueError(f"storage_uri: {self.storage_uri!r} names no user and repository")

    def to_object(self) -> dict[str, Any]:
        """Returns the initializer as a TrainJob has it."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        found: dict[str, Any] = {"storageUri": given.pop("storage_uri")}
        if secret := given.pop("secret"):
            found["secretRef"] = {"name": secret}
        env = [
            {
                "name": name.upper(),
                "value": ",".join(value) if isinstance(value, list) else str(value),
            }
            for name, value in given.items()
            if value is not None
        ]
        return found | ({"env": env} if env else {})


@dataclass
class HuggingFaceDatasetInitializer(Download):
    """A dataset of a hub, `hf://user/repository`, or a folder or file in it."""

    scheme: ClassVar[str] = "hf://"

    access_token: str | None = None

    def __post_init__(self) -> None:
        if "://" not in self.storage_uri:
            self.storage_uri = self.scheme + self.storage_uri
        super().__post_init__()

    @property
    def path(self) -> str:
        """The path within the repository; `.` for all of it."""
        _user, _repository, *rest = self.storage_uri.removeprefix(self.scheme).split("/", 2)
        return "".join(rest).strip("/") or "."


@dataclass
class HuggingFaceModelInitializer(Download):
    """A model of a hub, `hf://user/repository`."""

    scheme: ClassVar[str] = "hf://"

    ignore_patterns: list[str] | None = field(default_factory=lambda: list(_OTHER_WEIGHTS))
    access_token: str | None = None


@dataclass
class S3DatasetInitializer(Download):
    """A dataset in a bucket, `s3://bucket/folder`."""

    scheme: ClassVar[str] = "s3://"

    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    region: str | None = None
    role_arn: str | None = None


@dataclass
class S3ModelInitializer(S3DatasetInitializer):
    """A model in a bucket, `s3://bucket/folder`."""

    ignore_patterns: list[str] | None = field(default_factory=lambda: list(_OTHER_WEIGHTS))


@dataclass
class Initializer:
    """Downloads before a training; None leaves them to the runtime."""

    dataset: HuggingFaceDatasetInitializer | S3DatasetInitializer | None = None
    model: HuggingFaceModelInitializer | S3ModelInitializer | None = None

    def to_object(self) -> dict[str, Any]:
        """Returns both as a TrainJob has them."""
        parts = {"dataset": self.dataset, "model": self.model}
        return {name: part.to_object() for name, part in parts.items() if part is not None}
