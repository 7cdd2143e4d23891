"""Per-operator profiling of a network (`--by-operator`), compared with the machine's roofline."""
