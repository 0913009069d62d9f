"""The commands of `squall`: one module each, with a click command of the same name as `command`."""
