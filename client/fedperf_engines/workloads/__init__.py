"""Jobs that ship with fedperf: generated data and programs over it, drawn from a seed."""
