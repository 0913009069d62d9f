"""Holds the commands of `squall`: one module for each, whose click command is named `command`."""
