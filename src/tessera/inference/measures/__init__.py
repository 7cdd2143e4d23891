"""What is measured of replicas at work: windows, rates, latencies, memory, energy."""
