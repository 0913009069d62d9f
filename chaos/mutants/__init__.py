"""Plants known bugs of real brokers, one at a time, in Squall's broker or client. A planted bug is called a mutant.
Each mutant must be found, and a correct broker must raise no alarm.
"""

from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.mutants.registry import MUTANTS, find, select

__all__ = ["MUTANTS", "Mutant", "ReplacedFunction", "find", "select"]
