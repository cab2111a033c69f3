"""The two sides of `vtgrl bench step`: the same rollouts, our update and TRL's."""
