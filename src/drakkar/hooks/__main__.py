"""``python -I -m drakkar.hooks NAME …``."""

import sys

from drakkar.hooks.commands import main

sys.exit(main(sys.argv[1:]))
