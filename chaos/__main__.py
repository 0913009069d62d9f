"""`python -m squall.chaos`: what ./squall runs."""

from squall.chaos.cli import main

main()
