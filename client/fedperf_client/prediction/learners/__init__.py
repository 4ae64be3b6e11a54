"""Everything that can be fitted and mixed, behind one interface."""
