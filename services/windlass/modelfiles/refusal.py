"""Error of a refused file of a model."""


class RefusedDocument(ValueError):
    """A file that a model may not have, or not like this; `reason` is stable."""

    def __init__(self, message: str, *, reason: str = "unsafe_document") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
