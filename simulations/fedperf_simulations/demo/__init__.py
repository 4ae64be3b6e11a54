"""The demo: three organizations on one machine, with the programs that users have."""
