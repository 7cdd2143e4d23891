"""Modules of benchmarks/measure.py: the workload, the other tools, and the trials."""
