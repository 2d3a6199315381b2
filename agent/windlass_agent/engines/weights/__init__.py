"""Changes of the weights of a running engine: by a run that it follows, or its own training.

May import what `windlass_agent.engines` may.
"""
