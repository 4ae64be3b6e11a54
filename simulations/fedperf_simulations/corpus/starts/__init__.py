"""The models pretrained on the measurements, and their measured accuracy."""
