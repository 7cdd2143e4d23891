"""A device as this process plays it: cores with bounded memories, banks, and the tensors that lie there."""
