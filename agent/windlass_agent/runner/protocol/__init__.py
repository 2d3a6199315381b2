"""What a runner, its agent and its trainer tell each other: calls, events, places and outcomes.

It imports none of the other rooms.
"""
