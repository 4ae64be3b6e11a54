"""Advice where a workflow or a program should run, with its reasons."""
