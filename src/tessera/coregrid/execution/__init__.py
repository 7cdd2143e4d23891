"""Runs planned convolutions in the memories of a device: halo, blocks, products; every move counted."""
