"""Scaling of a network with the number of ranks: predicted, and measured on this host."""
