"""An organization's year before it joins, simulated in memory with peers."""
