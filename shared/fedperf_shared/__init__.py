"""What clients, server and simulations share: the words, the model and the wire."""
