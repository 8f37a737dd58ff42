"""`python -m anygatr` is the command `anygatr`; `torchrun -m anygatr` needs it."""

from anygatr.lab.cli import main

if __name__ == "__main__":
    main()
