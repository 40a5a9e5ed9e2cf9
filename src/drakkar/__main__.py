"""`python -m drakkar`."""

from drakkar.cli import main

main()
