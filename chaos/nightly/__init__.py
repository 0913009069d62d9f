"""Runs a night: many runs over many configurations, which a matrix defines, within a budget of time and disk. A night
that was interrupted can be resumed.
"""
