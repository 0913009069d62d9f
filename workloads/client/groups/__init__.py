"""A consumer's membership in a group: who owns what, and where the group stands."""
