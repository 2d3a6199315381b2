"""The built-in engine: a small torch + transformers + PEFT server of OpenAI's routes.

One thread (`scheduler.py`) owns the model and decodes all sequences together, one
token a tick, in a `lane` per adapter; the event loop (`api.py` and the routes
beside it) validates, tokenizes and writes. `protocol.py` is what may be asked.
"""
