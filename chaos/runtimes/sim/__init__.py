"""Many nodes in one process under virtual time, every draw from a seed."""
