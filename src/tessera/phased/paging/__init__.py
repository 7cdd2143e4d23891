"""Paging of weights: loaded on access by the network's own Python code, phase by phase."""
