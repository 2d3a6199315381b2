"""The admission of TrainJobs that others launch: completed and checked by their framework."""
