"""**Private**: releases and what is computed from them. No row of a sensitive table, nor a sum of rows, is seen."""
