"""`vtgrl bench NAME`: one comparison a file, our way against the usual one, with the difference in results beside the ratio."""
