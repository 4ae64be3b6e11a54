"""What this organization can run: programs, the engines that run them, the executor."""
