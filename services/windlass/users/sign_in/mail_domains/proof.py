"""Proof of mail domains: DNS is asked, at once and then every day."""

from windlass.core import telemetry
from windlass.core.errors import FailedPrecondition, Unavailable
from windlass.users.sign_in.mail_domains.records import TxtRecords, record_name, record_value
from windlass.users.sign_in.mail_domains.store import MailDomain, MailDomainStore, taken_domain

log = telemetry.logger("users.mail_domains")
# Of each sweep.
_MOST = 100


class MailDomainProof:
    """Looks for the records of claims."""

    def __init__(self, domains: MailDomainStore, records: TxtRecords):
        self._domains = domains
        self._records = records

    async def verify(self, claim: MailDomain) -> MailDomain:
        """The claim, once it is proven.

        An organization that does not prove the domain any more loses it to one that does. Raises
        FailedPrecondition `domain_not_proven` and `domain_taken`, and Unavailable.
        """
        if not await self._is_proven(claim):
            raise FailedPrecondition(
                f"DNS has no TXT record {record_name(claim.name)} that says "
                f"{record_value(claim.token)}. It may take a while until a new one is seen.",
                reason="domain_not_proven",
                param="name",
            )
        holder = await self._domains.holder(claim.name)
        if holder is None or holder.organization_id == claim.organization_id:
            return await self._domains.prove(claim)
        if await self._is_proven(holder):
            raise taken_domain(claim.name)
        return await self._domains.prove(claim, instead_of=holder.organization_id)

    async def sweep(self) -> None:
        """Looks again at what was proven a day ago; what stays away is not proven any more."""
        for claim in await self._domains.due(_MOST):
            try:
                if await self._is_proven(claim):
                    await self._domains.prove(claim)
                else:
                    log.warning("record_missing", domain=claim.name)
                    await self._domains.miss(claim)
            except (Unavailable, FailedPrecondition) as error:
                log.warning("domain_not_checked", domain=claim.name, reason=error.message)

    async def _is_proven(self, claim: MailDomain) -> bool:
        return record_value(claim.token) in await self._records.of(record_name(claim.name))
