"""Calls of functions, in the format that a model's own chat template has for them.

`learning.py` finds the format by rendering an example; `grammar.py` holds an answer to it and
`parsing.py` reads calls out of an answer while it is written.

It may import `constraints`, `text` and `windlass.inference_api`; never `generation`, nor `api`.
"""
