"""``python -m xmcjax``: the same as the command ``xmcjax``."""

import sys

from xmcjax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
