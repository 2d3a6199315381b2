"""Engines: the servers that answer for a model, each behind one small port.

`port.py` says what an engine is, `registry.py` which ones this machine can
start, `http_control.py` how one that runs is steered, `builtin/` is our own.

It imports the kernel, `windlass.inference_api` and `windlass.modelfiles`, and nothing else of the
agent; torch only in `builtin`.
"""
