"""Names of extended resources."""

NVIDIA_GPU = "nvidia.com/gpu"
