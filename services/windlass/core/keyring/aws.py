"""A key of AWS KMS, which never hands it out, by boto3 in threads."""

import base64
import hashlib
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from windlass.core.keyring.blocking import BlockingCalls

_PREFIX = "aws:"
_CONTEXT = "windlass"
# What KMS answers to a ciphertext of another key or context.
_WRONG = {"InvalidCiphertextException", "IncorrectKeyException"}
_SESSION_SECONDS = 900
# Credentials of a role are asked for anew so long before they end.
_RENEWAL_SECONDS = 120


@dataclass(frozen=True)
class KmsKey:
    """A key by its ARN, and by which role and addresses it is used."""

    arn: str
    # Empty: the one of the ARN.
    region: str = ""
    # Empty: AWS's own of the region.
    endpoint: str = ""
    sts_endpoint: str = ""
    # Empty: the rights of this process itself.
    role_arn: str = ""
    external_id: str = ""


class AwsWrappingKey:
    """Wraps by `Encrypt` and unwraps by `Decrypt`, with the context as encryption context."""

    def __init__(self, place: KmsKey, calls: BlockingCalls):
        self._place = place
        self._calls = calls
        self._lock = threading.Lock()
        self._client: Any = None
        self._until = 0.0
        # Of the key, so that another's is known without a question.
        self._mark = f"{_PREFIX}{hashlib.sha256(place.arn.encode()).hexdigest()[:16]}:"

    @property
    def id(self) -> str:
        """The ARN; versions are KMS's own."""
        return _PREFIX + self._place.arn

    async def wrap(self, key: bytes, *, context: str) -> str:
        """Ask KMS to encrypt; raises OSError."""
        answer = await self._call("encrypt", context, Plaintext=key)
        return self._mark + base64.b64encode(answer["CiphertextBlob"]).decode()

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """Ask KMS to decrypt; raises ValueError or OSError."""
        if not wrapped.startswith(self._mark):
            raise ValueError("it was not wrapped by this key of AWS KMS")
        blob = base64.b64decode(wrapped.removeprefix(self._mark), validate=True)
        return bytes((await self._call("decrypt", context, CiphertextBlob=blob))["Plaintext"])

    async def _call(self, action: str, context: str, **fields: bytes) -> dict[str, Any]:
        return await self._calls.run(partial(self._ask, action, context, fields))

    def _ask(self, action: str, context: str, fields: dict[str, bytes]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._opened(), action)(
                KeyId=self._place.arn, EncryptionContext={_CONTEXT: context}, **fields
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if action == "decrypt" and code in _WRONG:
                raise ValueError("AWS KMS cannot decrypt it with this key") from error
            raise OSError(f"AWS KMS refuses to {action} with {self._place.arn}: {code}") from error
        except BotoCoreError as error:
            raise OSError(f"AWS KMS does not answer for {self._place.arn}: {error}") from error
        return answer

    def _opened(self) -> Any:
        """The client, made anew before a role's credentials end."""
        with self._lock:
            if self._client is None or (self._place.role_arn and time.monotonic() > self._until):
                self._client = self._connect()
                self._until = time.monotonic() + _SESSION_SECONDS - _RENEWAL_SECONDS
            return self._client

    def _connect(self) -> Any:
        place = self._place
        region = place.region or place.arn.split(":")[3]
        # One session each: they may not be shared between threads while clients are made.
        session = boto3.session.Session(region_name=region)
        config = Config(connect_timeout=2, read_timeout=3, retries={"total_max_attempts": 2})
        credentials: dict[str, str] = {}
        if place.role_arn:
            sts = session.client("sts", endpoint_url=place.sts_endpoint or None, config=config)
            wanted = {"RoleArn": place.role_arn, "RoleSessionName": "windlass"}
            if place.external_id:
                wanted["ExternalId"] = place.external_id
            given = self._assumed(sts, wanted)
            credentials = {
                "aws_access_key_id": given["AccessKeyId"],
                "aws_secret_access_key": given["SecretAccessKey"],
                "aws_session_token": given["SessionToken"],
            }
        endpoint = place.endpoint or None
        return session.client("kms", endpoint_url=endpoint, config=config, **credentials)

    def _assumed(self, sts: Any, wanted: dict[str, str]) -> dict[str, str]:
        """The credentials of the role; raises OSError, which names the role and not the key."""
        role = self._place.role_arn
        try:
            answer = sts.assume_role(**wanted, DurationSeconds=_SESSION_SECONDS)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise OSError(f"AWS STS refuses to assume {role}: {code}") from error
        except BotoCoreError as error:
            raise OSError(f"AWS STS does not answer for {role}: {error}") from error
        credentials: dict[str, str] = answer["Credentials"]
        return credentials
