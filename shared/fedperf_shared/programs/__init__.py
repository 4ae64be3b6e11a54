"""What all programs share: command line, settings files, locks, clean ends."""
