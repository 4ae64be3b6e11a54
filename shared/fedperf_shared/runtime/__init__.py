"""Parts of every program: command line, settings files, processes and quantities."""
