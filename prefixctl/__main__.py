"""``python -m prefixctl`` is the same as ``prefixctl``."""

from prefixctl.cli.main import run

if __name__ == "__main__":
    run()
