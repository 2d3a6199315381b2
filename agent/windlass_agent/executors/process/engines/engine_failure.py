"""Failures of engines, in a word and a sentence."""

from windlass_agent.download import DownloadError


class EngineFailure(Exception):
    """The engine cannot run; `reason` is a word, the message for people."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


def reason_of(error: Exception) -> str:
    """Returns the word for whatever ended an engine's run."""
    if isinstance(error, EngineFailure):
        return error.reason
    return "DownloadFailed" if isinstance(error, DownloadError) else "StartFailed"
