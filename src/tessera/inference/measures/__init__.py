"""Measurements of replicas: throughput windows, metrics, energy."""
