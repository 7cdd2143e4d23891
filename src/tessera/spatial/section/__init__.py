"""The halo benchmarks' part of the report."""
