"""``python -m vcomp``: the command line."""

from vcomp.cli import main

if __name__ == "__main__":
    main()
