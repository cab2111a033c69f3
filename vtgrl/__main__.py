"""`python -m vtgrl`: what the ranks of `--nproc` run."""

from vtgrl.cli.main import main

main()
