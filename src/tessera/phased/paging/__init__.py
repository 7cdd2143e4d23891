"""Weights loaded when the network's own Python reads them: tables of weights, phases in memory, and mini-batches."""
