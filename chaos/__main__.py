"""Runs the `squall` program as `python -m squall.chaos`, which is what ./squall starts."""

from squall.chaos.cli import main

main()
