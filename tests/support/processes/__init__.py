"""Windlass as processes, and what stands around them."""
