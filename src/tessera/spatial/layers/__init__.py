"""A convolution on tiles that can overlap with its halo exchange, as timed by `tessera halo compute`."""
