"""Replicas: copies of a network, each in its own process that is pinned to its own cores."""
