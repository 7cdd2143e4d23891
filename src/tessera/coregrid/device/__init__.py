"""The device: cores with bounded memories, memory banks, memory configs, and tensors on them."""
