"""Reports, privacy statements, figures and plans, computed from releases and public quantities only."""
