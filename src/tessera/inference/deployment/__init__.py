"""Prepare a network for an inference engine: precision, quantisation and exported model files."""
