"""How a network scales over ranks: predicted, and measured where it can be."""
