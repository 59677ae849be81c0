"""**Sensitive**: declared columns, readers of tables, and exact sums over their rows."""
