"""The word for a target that the agent does not connect to."""


class TargetRefused(Exception):
    """A target that is not allowed, missing or silent; the message says which, for people."""
