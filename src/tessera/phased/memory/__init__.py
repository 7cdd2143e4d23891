"""Working memory: the budget, its buffers, the stream of weights through them, and activations."""
