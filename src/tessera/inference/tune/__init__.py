"""Tuning (`--tune`): find the best engine, replicas, threads and batch size for a network on this machine."""
