"""A proxy that cuts, delays and spoils what passes through it."""
