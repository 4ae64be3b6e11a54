"""Advice on where a job should run: a platform per operator and a cluster size, with reasons."""
