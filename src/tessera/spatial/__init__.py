"""Convolutional networks on images that are cut over ranks: exact, with the borders exchanged as they are needed."""
