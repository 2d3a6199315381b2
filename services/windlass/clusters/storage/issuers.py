"""Every query on who signs the tokens of clusters' service accounts."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain.policy import KUBERNETES
from windlass.clusters.storage.tables import clusters, issuers
from windlass.core.db import Database
from windlass.core.errors import NotFound


class IssuerStore:
    """Issuers of clusters, as their agents say."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, cluster_id: str, issuer: str, jwks: str) -> None:
        """Stores what the agent of a cluster says, in the place of what it said before."""
        values = {"issuer": issuer, "jwks": jwks, "reported_at": sa.func.now()}
        statement = insert(issuers).values(cluster_id=cluster_id, **values)
        async with self._database.begin() as connection:
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values)
            )

    async def get(self, cluster_id: str) -> pb.ClusterIssuer:
        """Returns the issuer of a registered cluster that has pods; raises NotFound."""
        query = (
            sa.select(issuers.c.issuer, issuers.c.jwks)
            .join(clusters, clusters.c.id == issuers.c.cluster_id)
            .where(issuers.c.cluster_id == cluster_id, clusters.c.executor == KUBERNETES)
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No issuer of the cluster {cluster_id!r}.", param="cluster_id")
        return pb.ClusterIssuer(issuer=row.issuer, jwks=row.jwks)
