"""One rank of `vtgrl bench sync`."""
