"""`python -m chaos`: what ./squall runs."""

from chaos.cli import main

main()
