"""The error that a tenant's operation ends with."""


class TuningRefused(Exception):
    """An operation that changed nothing; `reason` is stable, the message is for people."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason
        self.message = message
