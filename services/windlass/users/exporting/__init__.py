"""Exports of what an organization has, or of what it knows of a person, and their order.

May import what `users` may, and the modules of `users`.
"""
