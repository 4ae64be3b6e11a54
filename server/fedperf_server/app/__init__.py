"""The composition root: which parts make one coordinator process, and its life."""
