"""/openapi.json: one document of every operation, with what it takes and what it answers.

May import the contract, the types of HTTP bodies, and of the gateway the modules of parameters and
OpenAI's types of audit events.
"""

from windlass.gateway.openapi.document import make_document

__all__ = ["make_document"]
