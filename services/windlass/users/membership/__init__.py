"""Memberships: roles in projects and organizations, their owners, and departures.

May import what `users` may, and the modules of `users`.
"""
