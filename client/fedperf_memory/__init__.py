"""A coordinator and its organizations in one process, on a virtual clock."""
