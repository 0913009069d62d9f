"""Defines the faults that can hit a cluster, their targets and times, and the nemesis, which plays each fault and
proves that the fault landed.
"""
