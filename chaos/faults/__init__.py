"""The faults that can hit a cluster, their targets and times, and the nemesis that plays each fault and proves that it
landed.
"""
