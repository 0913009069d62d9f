"""Real client libraries as members of groups: what they tell of what is their own, and how their commits end."""
