"""The steps of a job and the life of its trainer: start, watch, stop, and explain its end.

It imports every room but `trainers`, `export` and `evaluation`, which it starts as processes; never
torch.
"""
