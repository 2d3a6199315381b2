"""Roles that tenants make of permissions, and who has them beside the role of their membership.

May import the domain, the scope and the tables of users, and the news of its keys.
"""
