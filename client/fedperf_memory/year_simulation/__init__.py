"""An organization's own year before it joins, lived in memory with stand-in members."""
