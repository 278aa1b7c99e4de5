"""What makes the tables and figures of Seeger, 2006."""
