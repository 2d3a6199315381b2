"""Owns the commands of fine-tuning jobs, and of files.

May import the framework and the SDK.
"""
