"""`python -m tools.realkube`."""

from tools.realkube.build import main

main()
