"""How this organization talks to a coordinator: joining, the Exchange, the Flower node and app."""
