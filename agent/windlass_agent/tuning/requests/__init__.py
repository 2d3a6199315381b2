"""Operations that a run may be asked for, their bounds, and what is refused.

It imports numpy and nothing else.
"""
