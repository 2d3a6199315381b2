"""Parameters that many resources have."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict

Limit = Annotated[
    int, Query(ge=0, le=10_000, description="Items on a page; 0: the resource's default.")
]
After = Annotated[str, Query(max_length=256, description="The last id of the page before.")]
INT64 = 2**63 - 1


class Body(BaseModel):
    """A JSON body; a field that it does not know is an error that names it."""

    model_config = ConfigDict(extra="forbid")


def bracketed(request: Request, name: str) -> list[str]:
    """All values of a repeated parameter, with OpenAI's brackets or without."""
    return [*request.query_params.getlist(f"{name}[]"), *request.query_params.getlist(name)]
