"""The laboratory: data, training, comparison, report and command line. Imports the library; never the reverse."""
