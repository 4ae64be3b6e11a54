"""Simulations and experiments: they wire client and server code, no algorithm of their own."""
