/* The smallest library, to find out whether C can be built and loaded. */
__attribute__((visibility("default"))) int probe(void) { return 1; }
