"""What makes the tables and figures of Alber, Zimmert, Dogan and Kloft, 2017."""
