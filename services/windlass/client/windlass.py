"""The client: a session, and the resources built on its verbs."""

from functools import cached_property
from typing import TYPE_CHECKING

from windlass.client.resources.chat import Chat
from windlass.client.resources.clusters import Clusters
from windlass.client.resources.exports import Exports
from windlass.client.resources.files import Files
from windlass.client.resources.jobs import Jobs
from windlass.client.resources.model_fetches import Fetches
from windlass.client.resources.models import Models
from windlass.client.resources.prefetches import Prefetches
from windlass.client.resources.scores import Input, read_scores
from windlass.client.resources.training import TrainingMethods
from windlass.client.transport.session import Session

if TYPE_CHECKING:
    from openai import OpenAI


class Windlass(Session, TrainingMethods):
    """A session with one server under one API key.

    Every method raises WindlassError for a refusal and ConnectionFailed when
    the server does not answer.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        project: str = "",
        organization: str = "",
        timeout: float = 60.0,
        ca: str = "",
        certificate: str = "",
    ):
        """`ca` names a file of the authorities that sign the server's certificate; the machine's
        own unless given. `certificate` names a PEM file of a certificate and its key, which the
        client shows where the server asks. Raises OSError for one that holds none.
        """
        super().__init__(
            base_url,
            api_key,
            project=project,
            organization=organization,
            timeout=timeout,
            ca=ca,
            certificate=certificate,
        )
        self.chat = Chat(self)
        self.clusters = Clusters(self)
        self.exports = Exports(self)
        self.files = Files(self)
        self.jobs = Jobs(self)
        self.models = Models(self)
        self.fetches = Fetches(self)
        self.prefetches = Prefetches(self)

    @cached_property
    def openai(self) -> "OpenAI":
        """openai-python's own client against this server.

        Raises ModuleNotFoundError without the extra `windlass[openai]`.
        """
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ModuleNotFoundError as error:
            message = "The package openai is not installed: pip install 'windlass[openai]'."
            raise ModuleNotFoundError(message, name="openai") from error

        extra = {name: value for name, value in self._headers.items() if name != "Authorization"}
        return OpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=self._api_key,
            default_headers=extra,
            http_client=DefaultHttpxClient(verify=self.tls) if self.tls else None,
        )

    def score(self, model: str, given: Input) -> list[float]:
        """A reward model's score of a text or a conversation, or of each of several.

        One score for each, in their order; greater is better.
        """
        return read_scores(self.post("/v1/score", {"model": model, "input": given}))
