"""Responses of the routes of certificates."""

from windlass.gateway.openapi.messages import Schema, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, kind, page, ref


def _certificate(object_: str, **more: Schema) -> Schema:
    details = obj({"valid_at": COUNT, "expires_at": COUNT, "content": TEXT}, optional=("content",))
    return obj(
        {
            "object": kind(object_),
            "id": TEXT,
            "name": nullable(TEXT),
            "created_at": COUNT,
            "certificate_details": details,
            **more,
        }
    )


CERTIFICATE_SCHEMAS: dict[str, Schema] = {
    "Certificate": _certificate("certificate"),
    "OrganizationCertificate": _certificate("organization.certificate", active=FLAG),
    "ProjectCertificate": _certificate("organization.project.certificate", active=FLAG),
}
CERTIFICATE_RESPONSES: dict[str, Schema] = {
    "create_certificate": ref("Certificate"),
    "get_certificate": ref("Certificate"),
    "update_certificate": ref("Certificate"),
    "delete_certificate": obj({"object": kind("certificate.deleted"), "id": TEXT}),
    "list_certificates": page("OrganizationCertificate"),
    "activate_certificates": page("OrganizationCertificate"),
    "deactivate_certificates": page("OrganizationCertificate"),
    "list_project_certificates": page("ProjectCertificate"),
    "activate_project_certificates": page("ProjectCertificate"),
    "deactivate_project_certificates": page("ProjectCertificate"),
}
