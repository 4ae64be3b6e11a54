"""What noisy sums tell: pure mathematics, without database or clock."""
