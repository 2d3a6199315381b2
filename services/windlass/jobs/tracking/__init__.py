"""Owns which trackers of experiments a job may report to.

May import the domain, and ask users for a tracker's secret.
"""
