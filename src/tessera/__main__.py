"""`python -m tessera` is the command `tessera`."""

import sys

from tessera.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
