"""Probes: a second look at the same tokens with other pixels, one a file."""
