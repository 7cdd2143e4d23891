"""Transports: point-to-point exchange and all-reduce between ranks.

Implementations: shared memory, MPI, torch.distributed, in-process.
"""
