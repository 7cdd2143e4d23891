"""How each kind of layer runs on a rank's tile."""
