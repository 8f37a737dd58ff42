"""What benchmarks of every kind share: clocks, memory, the machine, files."""
