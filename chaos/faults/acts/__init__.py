"""Holds actions that several kinds of faults share, and long actions. These modules import trio, so a kind imports them
only when it is played.
"""
