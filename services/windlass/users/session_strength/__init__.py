"""Strength of people's sessions, by what their organizations ask of sign-ins.

May import the domain, the standing and the tables of users.
"""
