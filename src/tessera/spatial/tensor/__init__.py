"""Tensors split over ranks, and the rules that compute operators on them."""
