"""Tessera measures and runs convolutional networks that are cut over many workers."""

__version__ = "0.1.0"
