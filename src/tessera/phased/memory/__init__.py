"""Working memory: a budget, the buffers in it, and what passes through them."""
