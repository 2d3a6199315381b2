"""Models: names that point to immutable versions, imports, deletion with its artifacts.

Owns models_models, models_versions, models_imports and models_stream.

May import the contract, the kernel and `windlass.modelfiles`; never another service.
"""
