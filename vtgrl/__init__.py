"""vtgrl: teach video language models to ground language in time, by reinforcement learning."""

__version__ = "0.1.0"
