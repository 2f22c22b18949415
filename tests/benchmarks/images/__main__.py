"""`.venv/bin/python tests/benchmarks/images`: see `command.py`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.images.command import main  # noqa: E402  (found through the line above)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
