"""How operations become instructions: a file for each family, and beside these what they share."""
