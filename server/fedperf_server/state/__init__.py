"""The coordinator's durable state: the database and access to its tables."""
