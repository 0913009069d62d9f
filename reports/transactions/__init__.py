"""Transactions on the page: who did which, when its parts were sent, prepared, marked and visible, and its story."""
