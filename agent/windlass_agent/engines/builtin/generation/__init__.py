"""The model, its adapters, and the thread that decodes all sequences together.

It imports `constraints` and `text`, never `api`, nor `tools`.
"""
