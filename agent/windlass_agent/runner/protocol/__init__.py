"""Protocol between a runner, its agent and its trainer: calls, events, paths and outcomes.

It imports none of the other rooms.
"""
