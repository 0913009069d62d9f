"""Real client libraries as transactional producers: what they are asked, and what each of their errors means."""
