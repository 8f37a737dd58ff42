"""What stands between a command and the system: terminal, output files, memory, errors."""
