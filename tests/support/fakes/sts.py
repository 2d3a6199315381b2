"""A fake of AWS's STS: moto assumes every role, whatever external id its trust policy asks for.

It answers `AssumeRole` as https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
documents it, with credentials where the external id is one of those that the role trusts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

_GIVEN = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ASIATEST</AccessKeyId><SecretAccessKey>test</SecretAccessKey>
<SessionToken>test</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""
_REFUSED = """<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>not authorized to perform sts:AssumeRole</Message></Error></ErrorResponse>"""


class Sts(ThreadingHTTPServer):
    """Trusts the external ids that a test puts into `trusted`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.trusted: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running() -> Iterator[Sts]:
    """Serves on loopback."""
    with Sts() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Request(BaseHTTPRequestHandler):
    server: Sts

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        given = asked.get("ExternalId", [""])[0] in self.server.trusted
        content = (_GIVEN if given else _REFUSED).encode()
        self.send_response(200 if given else 403)
        self.send_header("content-type", "text/xml")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""
