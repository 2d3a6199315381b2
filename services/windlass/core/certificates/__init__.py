"""Client certificates: reading those that tenants upload, and judging those that clients present.

May import the addresses, the clock and the errors of the kernel.
"""

from windlass.core.certificates.pem import UploadedCertificate, pem_of, read_pem
from windlass.core.certificates.presented import (
    CHAIN_HEADER,
    HEADER,
    PresentedCertificate,
    presented_by,
)
from windlass.core.certificates.trust import ClientTrust, is_admitted, trust_of

__all__ = [
    "CHAIN_HEADER",
    "HEADER",
    "ClientTrust",
    "PresentedCertificate",
    "UploadedCertificate",
    "is_admitted",
    "pem_of",
    "presented_by",
    "read_pem",
    "trust_of",
]
