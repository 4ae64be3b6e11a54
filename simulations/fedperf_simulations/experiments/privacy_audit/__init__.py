"""Whether the promised epsilon holds against an attacker."""
