"""The halo benchmarks: exchange and compute, measured on ranks."""
