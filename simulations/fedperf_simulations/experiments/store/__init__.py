"""How learning and asking cost grows with the executions that a home holds."""
