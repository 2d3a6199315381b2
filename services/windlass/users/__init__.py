"""Organizations, projects, members, API keys and tenants' secrets.

Owns the tables `users_*`; serves UsersService and UsersInternalService.
"""
