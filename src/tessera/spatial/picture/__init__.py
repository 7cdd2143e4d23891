"""Pictures of a halo plan."""
