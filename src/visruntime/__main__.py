"""``python -m visruntime``: the same as the ``visruntime`` command."""

from __future__ import annotations

import sys

from visruntime.cli import main

if __name__ == "__main__":
    sys.exit(main())
