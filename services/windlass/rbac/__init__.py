"""Roles, decisions and the audit log.

Owns the table `rbac_audit_events`; serves RbacService and RbacInternalService.

May import the contract, the kernel and `policy`; never another service.
"""
