"""What a block computes, as data: a frozen, printable list of operations, and analyses of it."""
