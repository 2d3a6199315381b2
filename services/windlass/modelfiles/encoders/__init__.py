"""Models that write nothing: how they make vectors of texts, and what their scores are.

May import `modelfiles.refusal`, and nothing else of Windlass.
"""
