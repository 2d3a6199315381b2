"""The word for a target that the agent does not connect to."""


class TargetRefused(Exception):
    """Not allowed, not there, or not answering; the message says which, for people."""
