"""How fast history is taken in."""
