"""Constrained decoding: an answer that can only be what a JSON schema or a tool's format allows.

It may import torch, `text` and `windlass.inference_api`, and no other room.
"""

from windlass_agent.engines.builtin.constraints.compiling import Grammars
from windlass_agent.engines.builtin.constraints.constraint import Constraint
from windlass_agent.engines.builtin.constraints.schemas import InvalidSchema, json_grammar

__all__ = ["Constraint", "Grammars", "InvalidSchema", "json_grammar"]
