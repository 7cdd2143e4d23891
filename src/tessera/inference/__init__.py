"""Inference benchmarks: throughput and latency of whole networks in several engines, on pinned replicas."""
