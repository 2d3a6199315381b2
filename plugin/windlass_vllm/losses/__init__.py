"""Losses of Tinker's datums: what each takes, and its formula.

`formulas` alone needs torch. It imports torch, msgspec and `refusal`.
"""
