"""What makes the tables and figures of Schultheis and Babbar, 2022."""
