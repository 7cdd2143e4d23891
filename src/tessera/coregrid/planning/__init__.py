"""How a convolution lies on the cores: shards, halos, blocks, memory, bytes, slices, and the search among them."""
