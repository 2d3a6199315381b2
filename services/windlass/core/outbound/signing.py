"""Signatures of what is posted to tenants' receivers, as Standard Webhooks has them.

https://www.standardwebhooks.com; OpenAI's clients verify the same.
"""

import base64
import hashlib
import hmac
import os

PREFIX = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret as receivers are given it: `whsec_` and base64."""
    return PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()


def signed(message_id: str, body: bytes, secret: str, at: int) -> dict[str, str]:
    """The headers that prove to a receiver who knows the secret what was sent, and when.

    `at` is in Unix seconds; a message that is sent again keeps its id.
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    told = f"{message_id}.{at}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, told, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{digest}",
    }
