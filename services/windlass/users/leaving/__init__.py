"""Erasures of projects and organizations, their order, and their reports.

May import what `users` may, and the modules of `users`.
"""
