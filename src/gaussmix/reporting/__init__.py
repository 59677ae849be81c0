"""Private: pages, statements, figures and plans, from releases and public quantities alone."""
