"""What an operation means: a frozen plan and a pure torch function, for any device and any derivative."""
