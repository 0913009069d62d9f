"""Holds the mutants (planted bugs), in modules by subject. A function under a decorator of `mutant.py` makes the plans
of a mutant, and becomes that mutant. If functions of two mutants would have one name, the mutant's id is added to it.
"""
