"""The control plane as the broker meets it: forwarding, registration, refusals."""
