"""How often intervals contain what they are about: coverage of every method, simulated."""
