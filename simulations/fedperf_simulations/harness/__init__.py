"""Parts of every experiment: settings, cells, targets, charts, progress."""
