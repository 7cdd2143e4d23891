"""Measure one case of phased execution in a worker."""
