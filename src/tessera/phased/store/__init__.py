"""Weight stores: files of weights, their layout, and reading them."""
