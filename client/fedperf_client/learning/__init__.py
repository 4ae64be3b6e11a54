"""Computations on an organization's own executions for its releases.

A sum gets its noise later, in the gate.
"""
