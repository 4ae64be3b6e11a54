"""Computations on an organization's own executions for its releases.

A sum gets its noise later, in the gate; only training by DP-SGD has noise in its steps.
"""
