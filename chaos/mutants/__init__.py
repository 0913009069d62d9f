"""Known bugs of real brokers, planted one at a time: each must be found, and a sound broker stay silent."""

from chaos.mutants.mutant import Mutant, Replaced
from chaos.mutants.registry import MUTANTS, find, select

__all__ = ["MUTANTS", "Mutant", "Replaced", "find", "select"]
