"""The report section of the halo benchmarks."""
