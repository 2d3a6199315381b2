"""Admission of TrainJobs that others launch: completed and checked by their framework.

It imports `frameworks`, `kube` and the kernel; never an executor.
"""
