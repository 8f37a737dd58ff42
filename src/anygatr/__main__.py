"""The command line as `python -m anygatr`, which `torchrun -m anygatr` needs."""

from anygatr.lab.cli import main

main()
