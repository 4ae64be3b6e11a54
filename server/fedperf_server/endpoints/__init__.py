"""Endpoints for organizations: Flower's Fleet API, and enrollment and the Exchange over gRPC."""
