"""References in torch of ttnn's operations, by which its tests compare results."""
