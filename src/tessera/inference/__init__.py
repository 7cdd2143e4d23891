"""Whole networks at work: images per second and latency, in the engines people use, on replicas that are pinned."""
