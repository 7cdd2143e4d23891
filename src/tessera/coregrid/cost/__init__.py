"""How long a plan takes: the rates of one core, the lanes of its timeline, the cost of moving tensors."""
