"""The section on where the installation keeps data."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from windlass.bounds import GEOGRAPHY_PATTERN
from windlass.core.config.sections import Section

Label = Annotated[str, Field(pattern=f"{GEOGRAPHY_PATTERN}|^$")]


class ResidencySection(Section):
    """Geographies of the stores: projects that have a geography are made where both are in it."""

    objects: Label = Field(
        "", description="Geography of the object store, such as EU; empty: none is said."
    )
    database: Label = Field(
        "", description="Geography of the database, such as EU; empty: none is said."
    )

    @property
    def stores(self) -> Mapping[str, str]:
        """The geography of each store by the setting that says it."""
        return {"residency.objects": self.objects, "residency.database": self.database}
