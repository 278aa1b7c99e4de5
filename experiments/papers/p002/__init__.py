"""What makes the table and figures of Gopal and Yang, 2013."""
