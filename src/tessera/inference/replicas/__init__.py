"""Copies of a network in pinned processes of their own: where they are, what they do, and who tells them."""
