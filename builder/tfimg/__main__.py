"""`python -m tfimg` is the same program as `tfimg`."""

from tfimg.cli import entrypoint

if __name__ == "__main__":
    entrypoint()
