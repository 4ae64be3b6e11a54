"""What a coordinator remembers: the database and what is stored in it."""
