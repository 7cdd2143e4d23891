"""The halo benchmarks, run on ranks: exchange, compute and validate."""
