"""The coordinator's durable state: the database and what is stored in it."""
