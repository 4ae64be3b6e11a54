"""What every experiment has in common: settings, cells, targets, charts, progress."""
