"""An ordinary torch network as one that runs on tiles."""
