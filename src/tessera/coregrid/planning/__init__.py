"""Plans of a convolution on the core grid: shards, halos, blocks, memory, bytes moved, and slices."""
