"""Which operator the time of a network goes to, measured in place, and how far each is from the machine's limits."""
