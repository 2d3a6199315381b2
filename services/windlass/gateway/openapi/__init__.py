"""/openapi.json: one document of every operation, with what it takes and what it answers."""

from windlass.gateway.openapi.document import make_document

__all__ = ["make_document"]
