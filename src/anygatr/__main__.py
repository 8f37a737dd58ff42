"""`python -m anygatr` is the command `anygatr`."""

from anygatr.lab.cli import main

if __name__ == "__main__":
    main()
