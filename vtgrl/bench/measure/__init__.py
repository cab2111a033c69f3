"""How benches count: FLOPs, memory of a fresh process, CPU time of interleaved runs."""
