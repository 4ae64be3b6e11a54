"""What learning a drifting sequence forgets, and how drift is noticed."""
