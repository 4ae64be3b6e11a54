"""How good predictions are at home: what joining brings, and the quality of synthetic rows."""
