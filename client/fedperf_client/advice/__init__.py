"""Advice on the number of executors of Spark applications."""
