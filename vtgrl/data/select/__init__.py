"""Which rows to train on, by difficulty (Time-R1, arXiv:2503.13377). p of a row is the IoU of a model's greedy answer: high is easy."""
