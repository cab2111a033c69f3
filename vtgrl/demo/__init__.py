"""`vtgrl demo`: a web page on which a model answers questions about clips, its reasoning and its answer drawn under the player."""
