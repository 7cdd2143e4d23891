"""Find the engine, the replicas, the threads and the batch that serve a network best on this machine."""
