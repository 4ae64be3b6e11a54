"""What predictions and their intervals are worth, by situation."""
