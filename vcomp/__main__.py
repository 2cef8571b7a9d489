"""``python -m vcomp``: the command line."""

from vcomp import cli

if __name__ == "__main__":
    cli.main()
