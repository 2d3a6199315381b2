"""Windlass as processes, and the programs around them."""
