"""Facts about a function that several passes ask for."""
