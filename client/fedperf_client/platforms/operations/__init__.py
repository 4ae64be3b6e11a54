"""The operations that a program is made of, one frozen dataclass each.

An operation is an operator together with the parameters that never leave the organization:
data set, columns, literals. The meaning is the same on every engine, and no module here
imports one.
"""
