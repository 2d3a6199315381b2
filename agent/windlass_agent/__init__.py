"""The cluster side of Windlass: what runs where the GPUs are."""
