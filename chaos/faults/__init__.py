"""Defines the faults that can hit a cluster, their targets and their times. Also defines the nemesis, which injects
each fault and proves that the fault took effect (that it landed).
"""
