"""Owns what a terminal shows of work that takes a while: bars, plots, lines.

May import all else of the SDK; nothing of it imports this.
"""
