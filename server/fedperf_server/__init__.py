"""The coordinator: enrollment, rounds, aggregation and the registry of models."""
