"""Services of ours in the process of the test, over real gRPC and Postgres."""
