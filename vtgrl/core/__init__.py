"""The parts that need no torch: records, registry, recipes, spans, run folders, logs, errors."""
