"""The report: rows of a comparison become one self-contained HTML page and the table that ends `compare`. No training."""

from anygatr.lab.report.page import write_report
from anygatr.lab.report.rows import load
from anygatr.lab.report.summary import show_report, summarise

__all__ = ["load", "show_report", "summarise", "write_report"]
