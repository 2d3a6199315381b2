"""Images of chats, fetched from an operator's hosts, checked and written into requests (ADR 59).

May import the kernel, `inference_api` and the gateway's errors.
"""
