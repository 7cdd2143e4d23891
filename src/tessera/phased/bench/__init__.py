"""One case of phased execution measured in a worker."""
