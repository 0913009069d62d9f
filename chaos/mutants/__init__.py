"""Known bugs of real brokers, planted one at a time: each must be found, and a sound broker stay silent."""

from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.mutants.registry import MUTANTS, find, select

__all__ = ["MUTANTS", "Mutant", "ReplacedFunction", "find", "select"]
