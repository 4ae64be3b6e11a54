"""The daemon: what an organization does while nobody looks, slot by slot."""
