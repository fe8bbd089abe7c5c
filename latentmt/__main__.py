"""`python -m latentmt`: the command line."""

from latentmt.cli import main

main()
