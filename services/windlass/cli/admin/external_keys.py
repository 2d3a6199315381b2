"""`windlass external-keys`."""

import sys
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Keys of the organization's own, which its projects' secrets are sealed under.")
create = group("Notes where a key is; `check` tries it.")
app.add_typer(create, name="create")
PATH = "/v1/organization/external_keys"
PROJECTS = "/v1/organization/projects"
Name = Annotated[str, typer.Argument(metavar="NAME")]
KeyId = Annotated[str, typer.Argument(metavar="EXTERNAL_KEY_ID")]
_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "TYPE": field("type"),
    "PROJECTS": lambda item: str(len(item["api_project_ids"])),
    "CREATED": moment("created_at"),
}


@command(create, "aws")
def create_aws(
    call: Call,
    name: Name,
    kms_arn: Annotated[str, typer.Option(help="ARN of the key.")],
    role_arn: Annotated[str, typer.Option(help="Role that the server assumes.")],
    external_id: Annotated[
        str, typer.Option(help="External id of the role; default: the organization's id.")
    ] = "",
) -> None:
    """Names a key of AWS KMS."""
    principal: dict[str, Any] = call.client.get("/v1/me")["principal"]
    place = {"kms_arn": kms_arn, "role_arn": role_arn}
    own = external_id or principal["organization_id"]
    _make(call, {"name": name, "type": "aws", "external_id": own, **place})


@command(create, "vault")
def create_vault(
    call: Call,
    name: Name,
    address: Annotated[str, typer.Option(help="URL of Vault or OpenBao.")],
    key: Annotated[str, typer.Option(help="Name of the key in the transit engine.")],
    mount: Annotated[str, typer.Option(help="Path of the transit engine.")] = "transit",
    namespace: Annotated[str, typer.Option(help="Namespace in Vault Enterprise.")] = "",
) -> None:
    """Names a key of Vault, whose token is asked for or read from stdin."""
    if sys.stdin.isatty():
        token = str(typer.prompt("Token", hide_input=True, err=True))
    else:
        token = sys.stdin.read().strip()
    place = {"address": address, "key": key, "mount": mount, "namespace": namespace}
    _make(call, {"name": name, "type": "vault", "token": token, **place})


@command(create, "pkcs11")
def create_pkcs11(
    call: Call,
    name: Name,
    token_name: Annotated[str, typer.Option(help="Token, as the operator calls it.")],
    key_label: Annotated[str, typer.Option(help="Label of the key in the token.")],
) -> None:
    """Names a key of a token that the operator lets the organization use."""
    place = {"token_name": token_name, "key_label": key_label}
    _make(call, {"name": name, "type": "pkcs11", **place})


def _make(call: Call, body: dict[str, Any]) -> None:
    call.out.item(call.client.post(PATH, body))


@command(app, "list")
def list_keys(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists keys."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, external_key_id: KeyId) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, external_key_id)))


@command(app, "check")
def check(call: Call, external_key_id: KeyId) -> None:
    """Wraps and unwraps something by a key."""
    call.client.post(at(PATH, external_key_id, "validate"), {})
    call.out.note(f"{external_key_id} wraps and unwraps.")


@command(app, "use")
def use(
    call: Call,
    project_id: Annotated[str, typer.Argument(metavar="PROJECT_ID")],
    external_key_id: Annotated[str, typer.Argument(metavar="[EXTERNAL_KEY_ID]")] = "",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make another data key by the key that it has.")
    ] = False,
) -> None:
    """Seals a project's secrets and objects under a key; without one, under the installation's."""
    if rotate and external_key_id:
        raise Problem("--rotate keeps the key that the project has: name none.", USAGE)
    body = {"rotate_data_key": True} if rotate else {"external_key_id": external_key_id}
    call.out.item(call.client.post(at(PROJECTS, project_id), body))
    call.out.note("Objects that were there before the project's first key stay as they are.")


@command(app, "delete")
def delete(call: Call, external_key_id: KeyId, yes: Yes = False) -> None:
    """Forgets a key that nothing of a project is sealed under."""
    call.confirm(f"Forget {external_key_id}?", yes)
    call.client.delete(at(PATH, external_key_id))
    call.out.note(f"Deleted {external_key_id}.")
