"""The composition root: the parts of a coordinator process, and its lifetime."""
