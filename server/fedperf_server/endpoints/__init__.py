"""What organizations reach: Flower's Fleet API, and the Exchange over gRPC."""
