"""What is shown: verdicts, tables and plots, from stored rows alone."""
