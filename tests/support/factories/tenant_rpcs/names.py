"""Ids of everything that a project has."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Names:
    """Ids of everything that a project has; all text, so that made-up ones are as easy."""

    organization: str
    project: str
    file: str
    upload: str
    model: str
    import_: str
    fetch: str
    job: str
    key: str
    secret: str
    user: str
    webhook: str
    destination: str
    role: str
    group: str
    provider: str
    workload_provider: str
    invite: str
    mail_domain: str
    elevation: str
    external_key: str
    certificate: str
    rule: str
    account: str
    erasure: str
    export: str
    session: str
    run: str
    sampler: str
    operation: str
    weights: str
    training: str

    @classmethod
    def never(cls) -> "Names":
        """Names of the same form that nothing ever had."""
        return cls(
            organization="org-" + "n" * 24,
            project="proj_" + "n" * 24,
            file="file-" + "n" * 24,
            upload="upload_" + "n" * 24,
            model="never-was",
            import_="import-" + "n" * 24,
            fetch="fetch-" + "n" * 24,
            job="ftjob-" + "n" * 24,
            key="key_" + "n" * 24,
            secret="never_was",
            user="nobody",
            webhook="we_" + "n" * 24,
            destination="auditdest_" + "n" * 24,
            role="role_" + "n" * 24,
            group="group_" + "n" * 24,
            provider="idp_" + "n" * 24,
            invite="invite_" + "n" * 24,
            mail_domain="unheard.example",
            elevation="elev_" + "n" * 24,
            external_key="ekm_" + "n" * 24,
            certificate="cert_" + "n" * 24,
            workload_provider="wip_" + "n" * 24,
            rule="wir_" + "n" * 24,
            account="svc_" + "n" * 24,
            erasure="erasure_" + "n" * 24,
            export="export_" + "n" * 24,
            session="session-" + "n" * 24,
            run="session-" + "n" * 24 + ":train:7",
            sampler="session-" + "n" * 24 + ":sample:7",
            operation="op_" + "n" * 24,
            weights="tinker://session-" + "n" * 24 + ":train:7/weights/nothing",
            training="train-" + "n" * 24,
        )

    @property
    def in_paths(self) -> dict[str, str]:
        """The names by those of the parameters in paths."""
        own = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        return {
            **{f"{kind.rstrip('_')}_id": name for kind, name in own.items()},
            "identity_provider_id": self.workload_provider,
            "federation_rule_id": self.rule,
            "service_account_id": self.account,
            "domain": self.mail_domain,
            "model": self.model,
            "name": self.secret,
        }

    def blank(self, text: str) -> str:
        """A text without these names, to compare what two refusals say."""
        # The longest first, since some begin with others.
        for name in sorted((getattr(self, field.name) for field in fields(self)), key=len)[::-1]:
            text = text.replace(name, "…")
        return text
