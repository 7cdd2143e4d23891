"""The parts of benchmarks/measure.py: the work, the peers, the trials."""
