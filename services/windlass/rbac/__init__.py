"""Roles, decisions and the audit log.

Owns the tables `rbac_audit_events` and `rbac_audit_chains`; serves RbacService and
RbacInternalService.

May import the contract, the kernel, `audit_chain` and `policy`; never another service.
"""
