"""`vtgrl quickstart`: watch a tiny model learn to ground language in video, in minutes on a CPU."""
