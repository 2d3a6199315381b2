"""Organizations, projects, members, API keys and tenants' secrets.

Owns the tables `users_*`; serves UsersService and UsersInternalService.

May import the contract, the kernel and `policy`; never another service.
"""
