"""Holds the actions of faults that are long or that several kinds of faults share. These modules import trio, so the
module of a kind imports them only inside of `play`, which injects the fault.
"""
