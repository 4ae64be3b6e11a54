"""Parts of every program: command line, settings files, locks, clean ends."""
