"""Ways of checkpoints out of their run: published, copied, downloaded and lent; traces too.

May import storage, blobs and the domain.
"""
