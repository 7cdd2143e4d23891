"""A network made ready for engines: how its numbers are kept, and the files that engines are given."""
