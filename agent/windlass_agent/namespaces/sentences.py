"""Error messages for the platform's administrator about objects that could not be applied."""

from windlass_agent.kube import (
    ApiServerUnavailable,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    ResourceNotFound,
)
from windlass_agent.kube.resources import Resource

LONGEST = 600


class AssignmentRefused(Exception):
    """A refusal of an assignment; the message says why and what to do."""


def sentence(error: KubeError, resource: Resource, name: str) -> str:
    """The meaning of a refused call, in a sentence."""
    what = f"{resource.kind} {name}"
    if isinstance(error, ResourceNotFound) and "namespaces" not in error.message:
        text = f"{what} cannot be created: the cluster does not serve {resource.api_version}."
    elif isinstance(error, ApiServerUnavailable):
        text = f"{what} has to wait: {error.message}"
    elif isinstance(error, Forbidden):
        text = f"The agent may not write {what}: {error.message}"
    elif isinstance(error, Invalid | Conflict):
        text = f"{what} was refused: {error.message}"
    else:
        text = f"{what}: {error.message}"
    return text[:LONGEST]
