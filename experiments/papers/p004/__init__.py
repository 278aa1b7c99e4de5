"""What makes the tables and figures of Lapin, Hein and Schiele, 2015."""
