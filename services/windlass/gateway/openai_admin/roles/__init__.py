"""Roles of organizations and projects, and who holds them.

May import what the other modules of OpenAI's administration API may.
"""
