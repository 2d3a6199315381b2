"""Certificates that an organization trusts in clients, and where they are demanded.

May import the domain, the tenants and the tables of users, its demands, and the news of its keys.
"""
