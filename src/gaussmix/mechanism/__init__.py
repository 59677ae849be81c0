"""The mechanism, which separates sensitive from private values: it draws all noise and makes all releases."""
