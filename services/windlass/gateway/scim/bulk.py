"""Bulk requests (RFC 7644, 3.7): operations that stand on their own, and on what others make."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from windlass.gateway.scim.discovery import MAX_BULK_OPERATIONS
from windlass.gateway.scim.errors import ScimError, scim_error
from windlass.gateway.scim.requests import Json, ScimAnswer, ScimRequest

_RESPONSE = "urn:ietf:params:scim:api:messages:2.0:BulkResponse"
_REFERENCE = re.compile(r"bulkId:([A-Za-z0-9._~-]{1,100})")
_PATH = re.compile(r"/(Users|Groups)(?:/([^/?#]+))?")
_METHODS = ("POST", "PUT", "PATCH", "DELETE")

Run = Callable[[ScimRequest], Awaitable[ScimAnswer]]


@dataclass(slots=True)
class _Operation:
    method: str
    path: str
    bulk_id: str
    version: str
    data: Json
    # The bulk ids that it refers to.
    needs: set[str]
    answer: Json | None = None


class _BulkRun:
    """The operations of one request while they are done."""

    def __init__(self, operations: list[_Operation], run: Run, base: str, *, errors: int):
        self._operations = operations
        self._run = run
        self._base = base
        # Errors after which the rest is left; 0: never.
        self._errors = errors
        self._failed = 0
        # By bulk id: the ids of what was made.
        self._made: dict[str, str] = {}

    async def all(self) -> list[Json]:
        """Does each operation once what it refers to is made; those that cannot be fail."""
        open_ = self._operations
        while open_ and not self._is_over():
            ready = [one for one in open_ if one.needs <= self._made.keys()]
            for one in ready or open_:
                if self._is_over():
                    break
                await self._do(one, resolved=bool(ready))
            open_ = [one for one in open_ if one.answer is None]
        return [one.answer for one in self._operations if one.answer is not None]

    def _is_over(self) -> bool:
        return bool(self._errors) and self._failed >= self._errors

    async def _do(self, one: _Operation, *, resolved: bool) -> None:
        said = {"method": one.method} | ({"bulkId": one.bulk_id} if one.bulk_id else {})
        try:
            if not resolved:
                missing = sorted(one.needs - self._made.keys())
                raise ScimError(
                    409, f"bulkId {missing[0]!r} is made by no operation before.", "invalidValue"
                )
            request = ScimRequest(
                one.method,
                _resolved(one.path, self._made).removeprefix("/"),
                # Nobody reads them here, and each change of a large group would list them all.
                query={"excludedAttributes": "members"},
                body=_resolved(one.data, self._made),
                if_match=one.version,
            )
            answer = await self._run(request)
        except Exception as error:
            refused = scim_error(error)
            self._failed += 1
            one.answer = {**said, "status": str(refused.status), "response": refused.content}
            if one.method != "POST":
                one.answer["location"] = f"{self._base}{one.path}"
            return
        if one.method == "POST" and answer.content is not None and one.bulk_id:
            self._made[one.bulk_id] = answer.content["id"]
        place = answer.location or f"{self._base}{_resolved(one.path, self._made)}"
        one.answer = {**said, "location": place, "status": str(answer.status)}
        if answer.tag:
            one.answer["version"] = answer.tag


async def run_bulk(body: Json, run: Run, base: str) -> Json:
    """The answers to the operations of a bulk request; raises ScimError for the whole."""
    fields = {name.lower(): value for name, value in body.items()}
    given, errors = fields.get("operations"), fields.get("failonerrors") or 0
    if not isinstance(given, list) or not given:
        raise ScimError(400, "Operations is a list of operations.", "invalidSyntax")
    if len(given) > MAX_BULK_OPERATIONS:
        raise ScimError(413, f"A bulk request has at most {MAX_BULK_OPERATIONS} operations.")
    if not isinstance(errors, int) or errors < 0:
        raise ScimError(400, "failOnErrors is a number.", "invalidValue")
    operations = [_operation(one) for one in given]
    ids = [one.bulk_id for one in operations if one.bulk_id]
    if len(ids) != len(set(ids)):
        raise ScimError(400, "A bulkId is there twice.", "invalidValue")
    done = await _BulkRun(operations, run, base, errors=errors).all()
    return {"schemas": [_RESPONSE], "Operations": done}


def _operation(given: Any) -> _Operation:
    fields = {key.lower(): one for key, one in given.items()} if isinstance(given, dict) else {}
    texts = {name: fields.get(name) or "" for name in ("method", "path", "bulkid", "version")}
    data = fields.get("data") or {}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(data, dict):
        raise ScimError(400, "An operation is not as RFC 7644 describes it.", "invalidSyntax")
    method, found = texts["method"].upper(), _PATH.fullmatch(texts["path"])
    if method not in _METHODS or found is None or (method == "POST") == bool(found[2]):
        raise ScimError(400, f"No operation {method[:20]} {texts['path'][:100]}.", "invalidPath")
    if method == "POST" and not texts["bulkid"]:
        raise ScimError(400, "POST has a bulkId.", "invalidValue")
    needs = set(_REFERENCE.findall(texts["path"])) | _references(data)
    return _Operation(method, texts["path"], texts["bulkid"], texts["version"], data, needs)


def _references(value: Any) -> set[str]:
    if isinstance(value, str):
        found = _REFERENCE.fullmatch(value)
        return {found[1]} if found else set()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_references, items))


def _resolved(value: Any, made: dict[str, str]) -> Any:
    """A value with ids in the place of references to what was made."""
    if isinstance(value, str):
        start, mark, name = value.rpartition("bulkId:")
        return start + made[name] if mark and name in made else value
    if isinstance(value, list):
        return [_resolved(one, made) for one in value]
    if isinstance(value, dict):
        return {key: _resolved(one, made) for key, one in value.items()}
    return value
