"""A night: many runs over many configurations, planned as a matrix, played within a budget, resumed where it was."""
