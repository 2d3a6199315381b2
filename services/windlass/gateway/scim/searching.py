"""Parameters of lists and searches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scim2_models import Context, ResponseParameters, SearchRequest

from windlass.bounds import MAX_DIRECTORY_PAGE
from windlass.gateway.scim.filters import bounded_filter
from windlass.gateway.scim.resources import POLICY

_NAMES = (
    "filter", "sortBy", "sortOrder", "startIndex", "count", "attributes", "excludedAttributes",
)  # fmt: skip
_SHOWN = ("attributes", "excludedAttributes")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a list."""

    # From 1.
    start: int
    count: int


def search_of(kind: type[SearchRequest[Any]], given: Mapping[str, Any]) -> SearchRequest[Any]:
    """A search by what a query or a body says; raises ValidationError and ScimError."""
    said = {name: given[name] for name in _NAMES if given.get(name) not in (None, "")}
    if "filter" in said:
        bounded_filter(said["filter"])
    return kind.model_validate(said, scim_ctx=Context.DEFAULT, scim_policy=POLICY)


def shown_of(
    kind: type[ResponseParameters[Any]], given: Mapping[str, Any]
) -> ResponseParameters[Any]:
    """Attributes that an answer shows; raises ValidationError."""
    said = {name: given[name] for name in _SHOWN if given.get(name)}
    return kind.model_validate(said, scim_ctx=Context.DEFAULT, scim_policy=POLICY)


def window(search: SearchRequest[Any]) -> Window:
    """The part of the list that a search asks for, within bounds."""
    count = MAX_DIRECTORY_PAGE if search.count is None else search.count
    start = 1 if search.start_index is None else search.start_index
    return Window(min(start, 2**31 - 1), min(count, MAX_DIRECTORY_PAGE))


def shows(shown: ResponseParameters[Any], attribute: str) -> bool:
    """Returns True if an answer shows an attribute that is shown unless somebody says otherwise."""
    if shown.attributes:
        return any(_head(path) == attribute for path in shown.attributes)
    excluded = shown.excluded_attributes or ()
    return all(str(path).rpartition(":")[2].lower() != attribute for path in excluded)


def _head(path: Any) -> str:
    return str(path).rpartition(":")[2].partition(".")[0].lower()
