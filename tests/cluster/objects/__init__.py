"""What tests put into a cluster: charts, pods, queues, runtimes, volumes."""
