"""Values of the analysis as tables, JSON documents and files; no analysis in here."""
