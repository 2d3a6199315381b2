"""Checkpoints in files of safetensors, of which only the blocks that changed are written.

`shards` reads headers, `blocks` hashes, `disk` writes, `log` is the one file that says which
version a folder is, `checkpoint` puts them together. It imports torch, msgspec, xxhash and
`refusal`.
"""
