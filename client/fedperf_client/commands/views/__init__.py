"""Output of commands that several of them share, or that would make a command's file too long."""
