"""Implements the broker's side of the control plane: request forwarding, registration, refusals."""
