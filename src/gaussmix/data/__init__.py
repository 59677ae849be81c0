"""Declared schemas and exact sums over rows. **Sensitive**: only the mechanism reads the results."""
