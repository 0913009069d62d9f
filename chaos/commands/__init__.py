"""What `squall` can be told: one module a command, each with a click command of its own name as `command`."""
