"""Defines plans: data that describes a whole run (cluster, workload, faults), and how a plan is drawn from a seed."""
