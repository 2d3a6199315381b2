"""Error of a refused model document."""


class RefusedDocument(ValueError):
    """A document that names code, or files from elsewhere; `reason` is stable."""

    def __init__(self, message: str, *, reason: str = "unsafe_document") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
