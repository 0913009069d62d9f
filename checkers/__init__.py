"""What "wrong" means, in plain Python."""
