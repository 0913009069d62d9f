"""Runs real client libraries as transactional producers, and says what each of their errors means."""
