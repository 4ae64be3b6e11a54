"""What sharing few runs privately costs."""
