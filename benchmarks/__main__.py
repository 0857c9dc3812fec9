"""The entry point of ``python -m benchmarks``; everything else is in ``command``."""

import sys

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
