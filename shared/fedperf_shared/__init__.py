"""Shared by clients, server and simulations: vocabulary, model, releases and wire format."""
